"""The sections `sensitivity`: which keys go together, and which stages come of them."""

from pathlib import Path

import pytest

from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.graph import build_graph
from quantflow.pipeline.machine import find_machine
from quantflow.pipeline.stage import Stage
from quantflow.recipe.schema import Recipe
from quantflow.recipe.spared import assigning
from tests.recipe.conftest import SOUND, Load, Refusal


@pytest.fixture
def local(folder: Path, load: Load) -> Load:
    """Load a recipe of a model in a folder, which a graph can be built of without a hub."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    return lambda text: load(text, "model.source=./model")


def stages(recipe: Recipe, tmp_path: Path) -> dict[str, Stage]:
    graph = build_graph(recipe, find_machine("cpu"), DigestCache(tmp_path / "digests.json"))
    names = [stage.name for stage in graph]
    for stage in graph:
        for fed_by in stage.inputs.values():
            assert names.index(fed_by) < names.index(stage.name)
    return {stage.name: stage for stage in graph}


def test_without_the_section_nothing_is_scanned_and_the_graph_is_as_ever(local: Load, tmp_path: Path) -> None:
    found = stages(local(SOUND), tmp_path)
    assert not {"scan", "baseline-selection", "assign:int4", "search:int4"} & found.keys()
    assert "assignment" not in found["assemble:int4"].inputs


def test_with_it_each_artifact_is_assembled_as_assigned(local: Load, tmp_path: Path) -> None:
    gptq = "  - {name: gptq, format: gptq, bits: 4, group_size: 64}\n"
    found = stages(local(SOUND + gptq + "sensitivity: {keep: ['*.o']}\n"), tmp_path)
    assert found["assemble:int4"].inputs["assignment"] == "assign:int4"
    assert found["refine:gptq"].inputs["assignment"] == "assign:gptq"
    assert found["yardstick:int4"].inputs["assignment"] == "assign:int4"
    assert found["assemble:int4"].params.written  # type: ignore[attr-defined]
    assert not found["assemble:gptq"].params.written  # type: ignore[attr-defined]
    params = found["assign:int4"].params
    assert (params.policy, params.max_spared) == ("budget", 0.1)  # type: ignore[attr-defined]
    assert params.choosing.assemble.keep == ("*.o",)  # type: ignore[attr-defined]
    assert found["check"].params.keep == ("*.o",)  # type: ignore[attr-defined]
    assert found["baseline-selection"].params.min_documents == 1  # type: ignore[attr-defined]


def test_a_search_is_a_stage_that_refuses_too_few_documents_before_calibration(
    local: Load, tmp_path: Path
) -> None:
    text = (
        SOUND + "sensitivity: {until: gate, max_spared: 0.2, time_limit: 2h}\ngate: {kl: {max_mean: 0.07}}\n"
    )
    found = stages(local(text), tmp_path)
    names = list(found)
    assert names.index("baseline-selection") < names.index("quantize")
    assert found["baseline-selection"].params.min_documents == 30  # type: ignore[attr-defined]
    params = found["search:int4"].params
    assert (params.max_spared, params.max_rounds, params.time_limit) == (0.2, 8, 7200)  # type: ignore[attr-defined]
    gate = params.gate  # type: ignore[attr-defined]
    assert (gate.artifact, gate.max_mean_kl, gate.max_increase) == ("int4", 0.07, 0.03)
    assert found["assign:int4"].params.policy == "search"  # type: ignore[attr-defined]
    assert found["assemble:int4"].inputs["assignment"] == "search:int4"


def test_an_artifact_s_own_section_stands_in_place_of_the_recipe_s(load: Load) -> None:
    other = "  - {name: b, format: awq, bits: 4, sensitivity: {policy: top_k, top_k: 3}}\n"
    export = "  - {name: c, format: hf, dtype: float16}\n"
    recipe = load(SOUND + other + export + "sensitivity: {max_spared: 0.3}\n")
    first, second, third = (assigning(recipe, artifact) for artifact in recipe.artifacts)
    assert first is not None
    assert (first.policy, first.spared) == ("budget", 0.3)
    assert second is not None
    assert (second.policy, second.top_k) == ("top_k", 3)
    assert third is None
    alone = load(SOUND + other)
    assert [assigning(alone, artifact) is not None for artifact in alone.artifacts] == [False, True]


@pytest.mark.parametrize(
    ("section", "key", "message"),
    [
        ("{threshold: 0.1}", "threshold", "it does nothing with policy budget"),
        ("{policy: threshold}", "policy", "policy threshold needs a threshold"),
        ("{policy: top_k}", "policy", "policy top_k needs a top_k"),
        ("{policy: top_k, top_k: 2, max_spared: 0.1}", "max_spared", "it does nothing with policy top_k"),
        ("{policy: top_k, top_k: 2, max_bytes: 9}", "max_bytes", "it does nothing with policy top_k"),
        ("{policy: top_k, top_k: 2, until: gate}", "policy", "a search chooses by itself"),
        ("{until: gate, effective_bits: 5.0}", "effective_bits", "a search goes by max_spared alone"),
        ("{max_rounds: 3}", "max_rounds", "it does nothing without `until: gate`"),
        ("{time_limit: 2h}", "time_limit", "it does nothing without `until: gate`"),
        ("{until: gate, time_limit: 2 hours}", "time_limit", "this is no duration"),
        ("{max_spared: 1.0}", "max_spared", "out of range: less than 1"),
        ("{max_spared: -0.1}", "max_spared", "out of range: at least 0"),
        ("{effective_bits: 0.0}", "effective_bits", "out of range: more than 0"),
        ("{method: fischer}", "method", "`fischer` is not allowed"),
        ("{keep: '*.o'}", "keep", "has to be a list"),
    ],
)
def test_keys_that_do_not_go_together_are_refused_where_they_stand(
    refusal: Refusal, section: str, key: str, message: str
) -> None:
    error = refusal(f"{SOUND}sensitivity: {section}\n")
    assert f"sensitivity.{key}: " in error.message
    assert message in error.message


def test_a_budget_of_bytes_alone_has_no_limit_of_weights(load: Load) -> None:
    recipe = load(SOUND + "sensitivity: {effective_bits: 5.0}\n")
    assert recipe.sensitivity is not None
    assert recipe.sensitivity.spared is None
