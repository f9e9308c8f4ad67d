"""A whole run measured in vLLM, with a stand-in for it: keys, stages, verdicts, report."""

import json
from pathlib import Path
from typing import Any

import pytest

import quantflow
from quantflow.errors import RuntimeUnavailableError
from quantflow.gate.verdict import Verdict
from quantflow.pipeline import machine
from quantflow.plan.make import make_plan
from tests.runtime.fakes.vllm import SHIFT_VARIABLE
from tests.runtime.faking import fake_environment
from tests.tiny_run import write_recipe

INT4, EXPORT = "format: awq, bits: 4, group_size: 32", "format: hf, dtype: float16"
SERVED = ("runtime.name=vllm",)
TIMED = ("gate.speed.concurrency=[1, 2]", "gate.speed.prompt_tokens=8", "gate.speed.output_tokens=4")
SPEED = (*TIMED, "gate.speed.rounds=3", "gate.speed.min_speedup=0.001")
MEMORY = ("gate.memory.max_ratio=5.0", "gate.memory.max_bytes=100000000000")


@pytest.fixture
def folder(tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe's folder, in a place where vLLM is installed and the processor is the oldest one."""
    fake_environment(tmp_path / "cache", monkeypatch)
    monkeypatch.setattr(machine, "_processor_instruction_sets", lambda: ("avx2",))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    path = write_recipe(tmp_path / "work", tiny_llama, max_increase=0.001, max_mean=0.0005)
    path.write_text(path.read_text().replace(INT4, EXPORT))
    monkeypatch.setenv(SHIFT_VARIABLE, "0.001")  # margins of an export are narrow
    # The stand-in knows nothing of language: its loss is not to be mistaken for the baseline's fault.
    monkeypatch.setattr("quantflow.gate.stage.baseline_criterion", lambda *given: None)
    return tmp_path / "work"


def run(folder: Path, *overrides: str) -> dict[str, Any]:
    recipe = quantflow.load_recipe(folder / "tiny.yaml", overrides)
    result = quantflow.run(recipe, folder=folder, overrides=overrides)
    report: dict[str, Any] = json.loads((result.report_folder / "report.json").read_text())
    report["html"] = (result.report_folder / "report.html").read_text()
    return report


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {f"{c['name']} {c['slice']}": c["verdict"] for c in report["criteria"]}


def test_vllm_alone_gives_a_bound_of_kl_so_that_nothing_passes(folder: Path) -> None:
    report = run(folder, *SERVED)
    assert verdicts(report) == {"perplexity all": "pass", "kl all": "inconclusive", "identity all": "pass"}
    assert report["verdict"] == Verdict.INCONCLUSIVE
    assert report["artifacts"][0]["measurements"]["runtime"]["name"] == "vllm"
    assert report["artifacts"][0]["measurements"]["kl"]["at_least"] is True
    assert "at least" in report["html"]
    assert "gate.kl.runtime: torch" in report["html"]


def test_with_kl_from_torch_and_speed_and_memory_it_passes_and_says_all_of_it(folder: Path) -> None:
    report = run(folder, *SERVED, "gate.kl.runtime=torch", *SPEED, *MEMORY)
    assert verdicts(report) == {
        "perplexity all": "pass",
        "kl all": "pass",
        "speed 1 at a time": "pass",
        "speed 2 at a time": "pass",
        "memory all": "pass",
        "identity all": "pass",
    }
    measured = report["artifacts"][0]["measurements"]
    assert measured["runtime"]["name"] == "vllm"
    assert measured["kl_runtime"]["name"] == "torch"
    assert measured["kl"]["at_least"] is False
    assert [at["concurrency"] for at in measured["speed"]["at"]] == [1, 2]
    assert measured["memory"]["artifact"]["peak_bytes"] > 0
    assert "Requests at a time" in report["html"]
    assert "Main memory" in report["html"]


def test_speed_is_measured_again_in_every_run_and_all_else_is_not(folder: Path) -> None:
    overrides = (*SERVED, *SPEED)
    first = run(folder, *overrides)
    recipe = quantflow.load_recipe(folder / "tiny.yaml", overrides)
    plan = {stage.name: stage for stage in make_plan(recipe, folder=folder).stages}
    assert [name for name, stage in plan.items() if not stage.cached] == ["speed:int4", "gate:int4"]
    assert str(plan["speed:int4"].reasons[0]) == "measured again"
    second = run(folder, *overrides)
    reused = {stage["name"]: stage["reused"] for stage in second["provenance"]["stages"]}
    assert [name for name, was in reused.items() if not was] == ["speed:int4", "gate:int4"]
    assert not any(event["code"] == "stored-output-damaged" for event in second["events"])
    one, other = (r["artifacts"][0]["measurements"]["speed"]["at"] for r in (first, second))
    assert one != other


def test_speed_that_is_not_judged_is_reported_all_the_same(folder: Path) -> None:
    report = run(folder, *TIMED)
    assert verdicts(report) == {"perplexity all": "pass", "kl all": "pass", "identity all": "pass"}
    assert report["artifacts"][0]["measurements"]["runtime"]["name"] == "torch"
    assert len(report["artifacts"][0]["measurements"]["speed"]["at"]) == 2


def test_another_package_in_vllms_environment_is_another_measurement(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder, *SERVED)
    fake_environment(folder.parent / "cache", monkeypatch, packages="2")
    again = {stage["name"]: stage["reused"] for stage in run(folder, *SERVED)["provenance"]["stages"]}
    assert not again["baseline"] and not again["measure:int4"]
    assert again["data"] and again["assemble:int4"]


@pytest.mark.parametrize(
    "override", ["runtime.name=vllm", "gate.memory.max_ratio=0.5", "gate.speed.min_speedup=1.2"]
)
def test_what_this_processor_cannot_run_is_refused_before_anything_is_quantized(
    folder: Path, override: str
) -> None:
    path = folder / "tiny.yaml"
    path.write_text(path.read_text().replace(EXPORT, INT4))
    with pytest.raises(RuntimeUnavailableError, match=r"without AVX-512, so int4 cannot be run"):
        run(folder, override)
    assert not (folder / "artifacts").exists()


def test_vllm_that_is_not_installed_is_refused_with_the_command_that_installs_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "empty"))
    with pytest.raises(RuntimeUnavailableError, match="quantflow runtime install vllm"):
        run(folder, *SERVED)
