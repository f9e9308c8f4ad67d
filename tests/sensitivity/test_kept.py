"""What an assignment says to the stages after it."""

from pathlib import Path

import pytest

from quantflow.errors import RecipeError
from quantflow.model.families import FAMILIES
from quantflow.model.units import named_units, require_disjoint
from quantflow.sensitivity.kept import ASSIGNMENT, Precisions, load_precisions, save_precisions, units_kept

LLAMA = FAMILIES["llama"]


def test_units_are_kept_as_assigned_and_without_an_assignment_as_the_recipe_says(tmp_path: Path) -> None:
    units = {
        "model.layers.0.o": "bfloat16",
        "model.layers.1.o": "w8",
        "model.layers.1.qkv": "w8a8",
        "lm_head": "bfloat16",
    }
    save_precisions(tmp_path, Precisions("bfloat16", units))
    assert load_precisions(tmp_path) == Precisions("bfloat16", units)
    assert load_precisions(tmp_path).kept == {"model.layers.0.o", "lm_head"}
    assert units_kept({ASSIGNMENT: tmp_path}, ("*.down",), LLAMA, 2) == {"model.layers.0.o"}
    assert units_kept({}, ("*.down",), LLAMA, 2) == {"model.layers.0.down", "model.layers.1.down"}


def test_patterns_that_mean_nothing_or_contradict_are_refused_with_their_key() -> None:
    assert named_units(("lm_head", "*.1.o"), LLAMA, 2, "sensitivity.force") == {"lm_head", "model.layers.1.o"}
    with pytest.raises(RecipeError, match="means a layer and not a unit") as layer:
        named_units(("*.q_proj",), LLAMA, 2, "sensitivity.force")
    assert layer.value.where == "sensitivity.force"
    with pytest.raises(RecipeError, match=r"model.layers.1.o is both to be kept and to be quantized"):
        require_disjoint(frozenset({"model.layers.1.o"}), frozenset({"model.layers.1.o"}), "x")
