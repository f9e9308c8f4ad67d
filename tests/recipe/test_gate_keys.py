"""What a recipe may say of perplexity, KL and the level of lossless, and what the gate is then asked."""

from pathlib import Path

import pytest

from quantflow.errors import RecipeError
from quantflow.gate.params import SliceMargin
from quantflow.pipeline.gate_params import gate_params
from quantflow.recipe.load import load_recipe
from tests.tiny_run import write_recipe


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "gate.perplexity.slices=[{slice: a, max_increase: 0.1}, {slice: a, max_increase: 0.2}]",
            "two margins",
        ),
        ("gate.kl.slices=[{slice: a, max_mean: 0.1}, {slice: a, max_mean: 0.2}]", "two margins"),
        ("gate.perplexity.slices=[{slice: a}]", "this key is missing"),
        ("gate.kl.slices=[{slice: '', max_mean: 0.1}]", "must not be empty"),
        ("gate.kl.max_p99=-1", "at least 0"),
        ("gate.kl.min_top1_agreement=1.5", "at most 1"),
        ("gate.require=L4", "`L4` is not allowed"),
    ],
)
def test_a_mistake_is_named_with_its_key(tmp_path: Path, override: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        load_recipe(write_recipe(tmp_path, tmp_path), (override,))


def test_the_gate_is_asked_what_the_recipe_says(tmp_path: Path) -> None:
    overrides = (
        "gate.perplexity.required=false",
        "gate.perplexity.slices=[{slice: billing, max_increase: 0.1}]",
        'gate.kl.slices=[{slice: "*", max_mean: 0.2, required: false}]',
        "gate.kl.max_p99=0.7",
        "gate.kl.min_top1_agreement=0.9",
        "gate.require=L1",
    )
    recipe = load_recipe(write_recipe(tmp_path, tmp_path), overrides)
    params = gate_params(recipe, recipe.artifacts[0])
    assert not params.perplexity_required and params.kl_required
    assert params.perplexity_slices == (SliceMargin(slice="billing", margin=0.1, required=True),)
    assert params.kl_slices == (SliceMargin(slice="*", margin=0.2, required=False),)
    assert (params.max_p99, params.min_top1_agreement, params.require) == (0.7, 0.9, "L1")


def test_nothing_more_is_judged_than_was_asked_for(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, tmp_path))
    params = gate_params(recipe, recipe.artifacts[0])
    assert params.perplexity_slices == params.kl_slices == ()
    assert (params.max_p99, params.min_top1_agreement, params.require) == (None, None, None)
