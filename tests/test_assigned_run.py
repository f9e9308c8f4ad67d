"""Whole runs that choose which units are spared: by a policy, and by a search until the gate passes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import quantflow
from quantflow.formats.read import open_artifact
from quantflow.gate.verdict import Verdict
from quantflow.plan.make import make_plan
from tests.tiny_run import ENVIRONMENT, write_recipe

AWQ = "  - {name: int4, format: awq, bits: 4, group_size: 32}"
ROUNDED = "  - {name: int3, format: gptq, method: rtn, bits: 3, group_size: 32}"
SPLIT = "{calibration: 0.3, selection: 0.2, evaluation: 0.5}"
LETTERS = 160
"""A quarter of them, 40, to search by and as many to judge by."""


def recipe(folder: Path, model: Path, artifacts: str, sensitivity: str, **margins: float) -> Path:
    path = write_recipe(folder, model, letters=LETTERS, **margins)
    text = path.read_text().replace(AWQ, artifacts)
    text = text.replace(SPLIT, "{calibration: 0.5, selection: 0.25, evaluation: 0.25}")
    path.write_text(f"{text}sensitivity: {sensitivity}\n")
    return path


def run(path: Path) -> Any:
    return quantflow.run(quantflow.load_recipe(path), folder=path.parent)


def test_a_run_spares_what_takes_away_most_and_every_loader_is_told(tiny_llama: Path, tmp_path: Path) -> None:
    path = recipe(tmp_path, tiny_llama, AWQ, "{max_spared: 0.12, force: [model.layers.2.o]}")
    planned = {stage.name: stage for stage in make_plan(quantflow.load_recipe(path), folder=tmp_path).stages}
    for name in ("baseline-selection", "scan", "settle", "assign:int4"):
        assert planned[name].unknown == ""
        assert planned[name].disk
    result = run(path)
    assert result.exit_code == 0
    (artifact,) = result.report.artifacts
    record = artifact.assignment
    assert 0 < record.mix.spared <= 0.12
    assert {decision.unit for decision in record.spared} == set(artifact.kept_units)
    assert record.mix.kl < record.plain.kl
    assert len(artifact.sensitivity.scores) == 12
    folder = tmp_path / "artifacts" / "tiny" / "int4"
    told = json.loads((folder / "config.json").read_text())["quantization_config"]["modules_to_not_convert"]
    spared = [unit.rpartition(".")[0] for unit in artifact.kept_units]
    assert all(any(name.startswith(block) for name in told) for block in spared)
    quantized = open_artifact(folder).quantized  # type: ignore[attr-defined]
    assert "model.layers.2.self_attn.o_proj" in quantized
    assert not quantized & set(told)
    content = json.loads((result.report_folder / "report.json").read_text())
    assert content["artifacts"][0]["assignment"]["decisions"]
    assert content["artifacts"][0]["sensitivity"]["scores"]


def test_a_search_ends_with_a_passed_gate_or_with_its_best_candidate_and_exit_code_1(
    tiny_llama: Path, tmp_path: Path
) -> None:
    missed = run(
        recipe(
            tmp_path,
            tiny_llama,
            ROUNDED,
            "{until: gate, max_rounds: 1, max_spared: 0.9}",
            max_mean=1e-5,
            max_increase=9.0,
        )
    )
    assert missed.exit_code == 1
    (artifact,) = missed.report.artifacts
    assert artifact.assignment.stopped_by in ("max_spared", "max_rounds")
    assert "search-goal-missed" in [event.code for event in missed.report.events]
    saved = tmp_path / "artifacts" / "tiny" / "int3"
    assert len(artifact.kept_units) == artifact.assignment.mix.units > 0
    open_artifact(saved)
    plain = artifact.assignment.plain.kl
    assert artifact.assignment.mix.kl < plain

    path = recipe(
        tmp_path,
        tiny_llama,
        ROUNDED,
        "{until: gate, max_spared: 0.9}",
        max_mean=0.6 * plain,
        max_increase=9.0,
    )
    met = run(path)
    assert met.exit_code == 0
    (artifact,) = met.report.artifacts
    record = artifact.assignment
    assert record.stopped_by == "holds"
    assert not record.rounds[0].holds
    assert record.rounds[-1].holds
    assert 0 < record.mix.spared < 0.9
    verdicts = {criterion.name: criterion.verdict for criterion in met.report.criteria}
    assert verdicts == dict.fromkeys(("perplexity", "kl", "identity"), Verdict.PASS)
    reused = {stage["name"]: stage["reused"] for stage in met.report.provenance["stages"]}
    assert reused["quantize"]
    assert reused["scan"]
    assert reused["assign:int3"]
    assert not reused["search:int3"]


def test_too_few_documents_to_search_by_are_refused_before_anything_is_calibrated(
    tiny_llama: Path, tmp_path: Path
) -> None:
    path = write_recipe(tmp_path, tiny_llama)
    path.write_text(f"{path.read_text()}sensitivity: {{until: gate}}\n")
    result = run(path)
    (error,) = result.errors
    assert error.where == "data.split.selection"
    assert "selection documents, near duplicates counted once, are too few" in error.message
    assert result.exit_code == 2
    ran = [stage["name"] for stage in result.report.provenance["stages"] if stage["seconds"] is not None]
    assert "quantize" not in ran


DIE = """
import os, signal
from quantflow.sensitivity import search, search_stage
real, done = search_stage.measured, []
def dying(*args):
    done.append(None)
    if len(done) == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args)
search_stage.measured = dying
search_stage.next_point = lambda points, at, strain: at + 1 if at + 1 < len(points) else None
from quantflow.cli import main
main()
"""


@pytest.mark.slow
def test_kill_9_in_any_round_of_a_search_changes_nothing_and_loses_nothing(
    tiny_llama: Path, tmp_path: Path
) -> None:
    """One unit a round; the process dies while it measures the first, the second and the third."""
    folders = {name: tmp_path / name for name in ("alone", "killed")}
    for folder in folders.values():
        section = "{until: gate, max_rounds: 3, max_spared: 0.9}"
        recipe(folder, tiny_llama, ROUNDED, section, max_mean=1e-5, max_increase=9.0)
    assert command(folders["alone"], 0) == 1
    best: list[int] = []
    for _ in range(3):
        # Each time the rounds before are there already, so that it is always the second measurement but for
        # the first time, when it is the first.
        assert command(folders["killed"], 1 if not best else 2) == -signal.SIGKILL
        progress = folders["killed"] / ".quantflow" / "store" / "partial"
        written = sorted(progress.glob("*/progress/round-*/written/artifact"))
        for artifact in written:
            open_artifact(artifact)
        best.append(len(written))
    assert best[0] >= 1
    assert command(folders["killed"], 0) == 1
    results = []
    for folder in folders.values():
        newest = max(folder.glob("reports/tiny/*/report.json"), key=lambda path: path.stat().st_mtime_ns)
        report = json.loads(newest.read_text())
        results.append({key: report[key] for key in ("criteria", "artifacts", "events", "verdict")})
    assert results[0] == results[1]


def command(folder: Path, die_in: int) -> int:
    return subprocess.run(
        [sys.executable, "-c", DIE.format(number=die_in), "run", "tiny.yaml"],
        cwd=folder,
        env={**ENVIRONMENT, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
        capture_output=True,
        timeout=600,
    ).returncode
