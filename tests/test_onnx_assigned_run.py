"""Whole runs to INT8 in ONNX Runtime: as it comes, with remedies, then with units spared until it holds."""

from pathlib import Path
from typing import Any

import pytest

import quantflow
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.graph import build_graph
from quantflow.pipeline.machine import find_machine
from tests.test_assigned_run import recipe

W8A8 = "  - {name: int8, format: onnx, scheme: w8a8}"
OVERRIDES = ("runtime.onnx.threads=1", "runtime.device=cpu")


def test_round_0_is_int8_as_it_comes_and_later_ones_go_on_from_the_remedied_values(
    tiny_llama: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    path = recipe(tmp_path, tiny_llama, W8A8, "{until: gate, keep: [lm_head]}")
    graph = build_graph(
        quantflow.load_recipe(path, OVERRIDES), find_machine("cpu"), DigestCache(tmp_path / "digests.json")
    )
    stages = {stage.name: stage for stage in graph}
    names = list(stages)
    for stage in graph:
        for fed_by in stage.inputs.values():
            assert names.index(fed_by) < names.index(stage.name)
    assert stages["assign:int8"].inputs["codes"] == "quantize"
    assert stages["search:int8"].inputs["codes"] == "remedy:int8"
    assert stages["scan:int8"].inputs["codes"] == "remedy:int8"
    assert stages["settle:int8"].inputs["codes"] == "remedy:int8"
    assert stages["search:int8"].inputs["scan"] == "settle:int8"
    assert stages["search:int8"].inputs["baseline"] == "baseline-selection:onnx"
    assert stages["assemble:int8"].inputs["assignment"] == "search:int8"
    assert stages["search:int8"].params.remedied  # type: ignore[attr-defined]
    assert stages["remedy:int8"].params.keep == ("lm_head",)  # type: ignore[attr-defined]
    assert names.index("baseline-selection:onnx") < names.index("quantize")


@pytest.mark.slow
def test_a_search_for_an_int8_graph_saves_what_onnx_runtime_loads(tiny_llama: Path, tmp_path: Path) -> None:
    def run(max_mean: float) -> Any:
        path = recipe(
            tmp_path,
            tiny_llama,
            W8A8,
            "{until: gate, max_spared: 0.5, max_rounds: 3}",
            max_mean=max_mean,
            max_increase=9.0,
        )
        return quantflow.run(quantflow.load_recipe(path, OVERRIDES), folder=tmp_path)

    missed = run(1e-9)
    assert missed.errors == ()
    assert missed.exit_code == 1
    (artifact,) = missed.report.artifacts
    first, remedied, *spared = artifact.assignment.rounds
    assert (first.mix.units, remedied.mix.units) == (0, 0)
    assert remedied.mix.kl != first.mix.kl
    assert spared[-1].mix.units > 0
    assert spared[-1].mix.kl < remedied.mix.kl
    saved = tmp_path / "artifacts" / "tiny" / "int8"
    assert (saved / "model.onnx").is_file()
    assert artifact.census is not None
    rungs = {"float": "float32", "weights-int8": "int8-w8-row-sym"}
    fallen = {unit: found.found for unit, found in artifact.census.units.items() if found.found != "int8"}
    decided = {decision.unit: decision.precision for decision in artifact.assignment.spared}
    assert {unit: rungs[found] for unit, found in fallen.items()} == decided
    assert set(artifact.sensitivity.precisions) == {"w8a8-w8-row-sym", "int8-w8-row-sym"}
    # A margin between what INT8 is as it comes and the best candidate: the search ends within it.
    met = run((first.mix.kl + spared[-1].mix.kl) / 2)
    (artifact,) = met.report.artifacts
    assert not artifact.assignment.rounds[0].holds
    assert artifact.assignment.stopped_by == "holds"
    assert met.exit_code == 0
