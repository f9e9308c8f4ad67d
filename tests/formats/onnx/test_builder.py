"""What the builder's process may come to, told in plain words; a stand-in takes its place."""

from dataclasses import replace
from pathlib import Path

import pytest

from quantflow.errors import ArtifactError, QuantizationError, RuntimeUnavailableError
from quantflow.formats.onnx import builder
from quantflow.formats.onnx.params import GRAPH_FILE, OnnxBaseParams

PARAMS = OnnxBaseParams(precision="fp32", provider="cpu", builder="stand-in 1")


def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Path:
    """Run a program where the builder would be; the folder that it was told to write to."""
    places = tmp_path / "places"
    places.mkdir()
    (places / "stand_in.py").write_text(program)
    monkeypatch.syspath_prepend(places)
    monkeypatch.setenv("PYTHONPATH", str(places))
    work = tmp_path / "work"
    work.mkdir()
    program_of = replace(builder.BUILDER, module="stand_in")
    builder.build_graph_folder(PARAMS, tmp_path / "model", tmp_path / "graph", work, program_of)
    return tmp_path / "graph"


def test_it_is_offline_and_works_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"""
import os, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
folder.mkdir()
(folder / "{GRAPH_FILE}").write_text(os.environ["HF_HUB_OFFLINE"] + str(os.listdir()))
"""
    assert (build(tmp_path, monkeypatch, program) / GRAPH_FILE).read_text() == "1[]"


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        ("print('first'); raise SystemExit('out of ideas')", ArtifactError, r"failed: first \| out of ideas"),
        ("pass", ArtifactError, "failed: it said nothing"),
        ("import os; os.kill(os.getpid(), 9)", ArtifactError, "was killed, as the system does"),
        ("raise SystemExit('The x model is not currently supported.')", QuantizationError, "does not take"),
        ("raise OSError(28, 'No space left on device')", OSError, "No space left"),
    ],
)
def test_what_goes_wrong_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        build(tmp_path, monkeypatch, program)


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    program = replace(builder.BUILDER, module="no_such_package.models.builder")
    with pytest.raises(RuntimeUnavailableError, match="onnxruntime-genai is not installed"):
        builder.build_graph_folder(PARAMS, tmp_path / "model", tmp_path / "graph", tmp_path / "work", program)
