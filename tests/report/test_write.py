"""report.json and report.html on disk."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quantflow.errors import StoreError
from quantflow.gate.verdict import Verdict
from quantflow.report.html import render_html
from quantflow.report.model import DataReport, Report
from quantflow.report.write import write_report
from tests.report.samples import accounting, report


def test_report_json_has_the_keys_of_the_interface(tmp_path: Path) -> None:
    write_report(report(Verdict.PASS, Verdict.FAIL), tmp_path / "new" / "folder")
    content = json.loads((tmp_path / "new/folder/report.json").read_text())
    assert list(content)[:10] == [
        "schema_version",
        "run_id",
        "recipe",
        "title",
        "language",
        "text",
        "published_text",
        "verdict",
        "exit_code",
        "reason",
    ]
    assert list(content)[10:] == [
        "criteria",
        "artifacts",
        "baseline",
        "data",
        "events",
        "provenance",
        "decisions",
        "trend",
    ]
    assert (content["schema_version"], content["verdict"], content["exit_code"]) == (1, "fail", 1)
    criterion, artifact = content["criteria"][0], content["artifacts"][0]
    assert {"artifact", "name", "slice", "metric", "baseline", "value", "delta"} <= criterion.keys()
    assert {"ci_low", "ci_high", "margin", "n", "n_clusters", "noise_floor"} <= criterion.keys()
    assert {"verdict", "required"} <= criterion.keys()
    assert {"name", "path", "format", "bytes", "verdict", "measurements", "scheme"} <= artifact.keys()
    assert {"mean", "median", "p99", "p999", "max", "top1_agreement"} <= artifact["measurements"]["kl"].keys()
    assert "measurements" in content["baseline"]
    assert {"accounting", "slices"} <= content["data"].keys()


def test_report_json_reads_back_as_the_same_report(tmp_path: Path) -> None:
    written = report(Verdict.INCONCLUSIVE, Verdict.PASS)
    write_report(written, tmp_path)
    assert Report.model_validate_json((tmp_path / "report.json").read_text()) == written


def test_equal_reports_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_report(report(Verdict.PASS, Verdict.PASS), tmp_path / name)
    for name in ("report.json", "report.html"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_page_on_disk_is_the_rendered_page(tmp_path: Path) -> None:
    shown = report(Verdict.PASS, Verdict.PASS)
    write_report(shown, tmp_path)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render_html(shown)


def test_a_write_that_is_cut_off_leaves_the_former_report_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(report(Verdict.PASS, Verdict.PASS), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device") as raised:
        write_report(report(Verdict.FAIL, Verdict.FAIL), tmp_path)
    assert raised.value.where == str(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_figure_that_is_not_finite_is_never_written(tmp_path: Path) -> None:
    broken = report(Verdict.PASS, Verdict.PASS, provenance={"seconds": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_report(broken, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_text_that_no_encoding_can_carry_does_not_stop_the_report(tmp_path: Path) -> None:
    write_report(report(Verdict.PASS, Verdict.PASS, title="broken \ud800 text"), tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["title"] == "broken \ud800 text"
    assert "broken ? text" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_slices_are_counted_in_every_split() -> None:
    counted = accounting()
    evaluation = counted.splits["evaluation"]
    without = evaluation.model_copy(
        update={"slices": {k: v for k, v in evaluation.slices.items() if k != "orders"}}
    )
    spread = DataReport.of(counted.model_copy(update={"splits": {**counted.splits, "evaluation": without}}))
    assert spread.slices["orders"] == {"calibration": 6, "selection": 6, "evaluation": 0}
    assert spread.slices["articles"]["evaluation"] == 10


def test_writing_a_report_imports_no_torch() -> None:
    code = (
        "import sys; import quantflow.report.write;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_disk_that_takes_one_of_the_two_files_keeps_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, calls = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        write_report(report(Verdict.PASS, Verdict.PASS), tmp_path / "reports" / "id")
    assert list((tmp_path / "reports").iterdir()) == []


def test_what_a_killed_run_left_of_a_report_is_swept_when_it_is_old(tmp_path: Path) -> None:
    for name, age in ((".old.new", 7200), (".young.new", 60)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    write_report(report(Verdict.PASS, Verdict.PASS), tmp_path / "id")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".young.new", "id"]
