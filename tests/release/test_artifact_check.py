"""An artifact is what it says it is, or the check says what is wrong."""

import json
from pathlib import Path

import pytest

from quantflow.errors import ArtifactError
from quantflow.gate.verdict import Verdict
from quantflow.release.artifact_check import (
    artifact_digest,
    check_artifact,
    require_report_of,
    vouched_digest,
)
from tests.release.test_folder import artifact as written
from tests.report.samples import artifact, report


def test_a_whole_artifact_is_told_with_its_digest(tmp_path: Path) -> None:
    checked = check_artifact(written(tmp_path, "weights"))
    assert (checked.files, checked.bytes, checked.digest) == (1, len("weights"), artifact_digest(tmp_path))


def test_a_changed_a_missing_and_an_unknown_file_are_named(tmp_path: Path) -> None:
    folder = written(tmp_path, "weights")
    (folder / "config.py").touch()
    with pytest.raises(ArtifactError, match=r"does not vouch for: config\.py"):
        check_artifact(folder)
    (folder / "config.py").unlink()
    (folder / "model.safetensors").write_text("weighed")
    with pytest.raises(ArtifactError, match=r"not what was written: model\.safetensors"):
        check_artifact(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"missing: model\.safetensors"):
        check_artifact(folder)


def test_a_linked_folder_is_unknown_whatever_it_is_called(tmp_path: Path) -> None:
    folder, elsewhere = written(tmp_path / "artifact", "weights"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tool.jinja").write_text("another template")
    for name in ("additional_chat_templates", "README.md"):
        (folder / name).symlink_to(elsewhere, target_is_directory=True)
        with pytest.raises(ArtifactError, match=f"does not vouch for: {name}"):
            check_artifact(folder)
        (folder / name).unlink()
    check_artifact(folder)


def test_a_quantflow_json_beside_other_weights_gives_them_no_digest(tmp_path: Path) -> None:
    folder = written(tmp_path, "weights")
    assert vouched_digest(folder) == artifact_digest(folder)
    (folder / "model.safetensors").write_text("better weights")
    assert vouched_digest(folder) is None
    (folder / "quantflow.json").unlink()
    assert vouched_digest(folder) is None


OUTSIDE = '{"files": {"../../etc/passwd": "0"}}'


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"files": 3}', OUTSIDE, "\x00"])
def test_provenance_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "quantflow.json").write_text(content)
    with pytest.raises(ArtifactError):
        check_artifact(tmp_path)


def test_a_folder_without_provenance_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no quantflow\.json"):
        check_artifact(tmp_path)


def test_a_report_about_other_bytes_or_another_model_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, "weights")
    provenance = json.loads((folder / "quantflow.json").read_text())
    found = report(Verdict.PASS, Verdict.PASS)
    assert found.baseline is not None
    provenance["source"] = {"identity": found.baseline.identity}
    (folder / "quantflow.json").write_text(json.dumps(provenance))
    checked = check_artifact(folder)
    about = found.model_copy(update={"artifacts": (artifact(Verdict.PASS, digest=checked.digest),)})
    assert require_report_of(about, checked).digest == checked.digest
    with pytest.raises(ArtifactError, match="not about these bytes"):
        require_report_of(found, checked)
    other = found.baseline.model_copy(update={"identity": "0" * 64})
    with pytest.raises(ArtifactError, match="another lossless model"):
        require_report_of(about.model_copy(update={"baseline": other}), checked)
