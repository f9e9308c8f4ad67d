"""What a run computes on and in: pinned, recorded, shown, and refused where it is not there."""

import json
from pathlib import Path

import pytest

import quantflow
from tests.test_run import Command, command, reports
from tests.tiny_run import write_recipe

__all__ = ["command"]
BFLOAT16 = "runtime.calibration_dtype=bfloat16"


@pytest.fixture(scope="module")
def runs(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the tiny recipe has run with calibration in float32, then in bfloat16."""
    folder = tmp_path_factory.mktemp("devices")
    recipe = write_recipe(folder, tiny_llama)
    for dtype in ("float32", "bfloat16"):
        given = (f"runtime.calibration_dtype={dtype}",)
        quantflow.run(quantflow.load_recipe(recipe, given), folder=folder, overrides=given)
    return folder


def test_calibrated_in_bfloat16_an_artifact_is_as_near_the_baseline_as_in_float32(runs: Path) -> None:
    exact, rounded = (report["artifacts"][0]["measurements"] for report in reports(runs))
    assert exact["kl"]["mean"] != rounded["kl"]["mean"]  # it did calibrate on other numbers
    # bf16 of a whole model moves its distributions by about a thousandth of a nat; here only what is
    # searched by moves, which has to cost less than that.
    assert abs(exact["kl"]["mean"] - rounded["kl"]["mean"]) < 1e-3
    assert {m["runtime"]["dtype"] for m in (exact, rounded)} == {"float32"}


def test_only_quantizing_and_what_follows_depends_on_the_calibration_dtype(runs: Path) -> None:
    _, second = reports(runs)
    reused = {stage["name"]: stage["reused"] for stage in second["provenance"]["stages"]}
    assert {name for name, again in reused.items() if not again} == {
        "quantize",
        "assemble:int4",
        "measure:int4",
        "gate:int4",
    }


def test_the_run_says_what_it_computed_in(runs: Path) -> None:
    for report, dtype in zip(reports(runs), ("float32", "bfloat16"), strict=True):
        computing = report["provenance"]["computing"]
        assert (computing["device"], computing["calibration_dtype"]) == ("cpu", dtype)
        assert computing["measuring_dtype"] == "float32"
        assert int(report["baseline"]["measurements"]["runtime"]["options"]["threads"]) >= 1
    page = sorted(runs.glob("reports/tiny/*/report.html"))[-1].read_text()
    assert "computing.calibration_dtype" in page
    records = [json.loads(path.read_text()) for path in sorted(runs.glob(".quantflow/runs/*.json"))]
    assert [record["calibration_dtype"] for record in records] == ["float32", "bfloat16"]


def test_runs_and_plan_show_it(command: Command, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command.folder = runs
    assert command("runs") == 0
    assert "cpu, bfloat16" in command.out
    assert command("plan", "tiny.yaml", "--set", BFLOAT16) == 0
    assert "calibration in bfloat16" in command.out
    assert "measurements in float32" in command.out
    assert command("plan", "tiny.yaml", "--json") == 0
    assert json.loads(command.out)["computing"]["device"] == "cpu"


def test_a_gpu_that_is_not_there_is_refused_before_anything_is_read(
    command: Command, tiny_llama: Path
) -> None:
    path = write_recipe(command.folder, tiny_llama)
    path.write_text(path.read_text() + "runtime: {device: cuda}\n")
    assert command("run", "tiny.yaml") == 4
    assert "no usable CUDA device" in command.err
    assert "tiny.yaml:14: runtime.device" in command.err
    assert not (command.folder / ".quantflow").exists()
