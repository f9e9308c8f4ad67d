"""What somebody else made is held to the default margins of what it is, and the report says so."""

from pathlib import Path

import pytest

from quantflow.errors import RecipeError
from quantflow.formats.assembly import ImportedScheme
from quantflow.gate.import_margins import with_margins_of_import
from quantflow.gate.margins import DEFAULT_MAX_INCREASE, default_margin
from quantflow.gate.params import GateParams
from quantflow.pipeline.gate_params import gate_params
from quantflow.recipe.load import load_recipe
from tests.reporting import RecordingReporter
from tests.tiny_run import write_recipe

INT4 = "  - {name: int4, format: awq, bits: 4, group_size: 32}"
GATE = "  perplexity: {max_increase: 0.5}\n  kl: {max_mean: 0.5}\n"


def params_of(folder: Path, gate: str) -> GateParams:
    path = write_recipe(folder, folder)
    text = path.read_text().replace(INT4, "  - {name: theirs, import: theirs}")
    path.write_text(text.replace(f"gate:\n{GATE}", gate))
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()
    recipe = load_recipe(path)
    return gate_params(recipe, recipe.artifacts[0])


@pytest.mark.parametrize(
    ("found", "margins", "words"),
    [
        (ImportedScheme("awq", 4, 128, None), (0.03, 0.05), "4 bits"),
        (ImportedScheme("compressed-tensors", 8, -1, None), (0.01, 0.05), "8 bits"),
        (ImportedScheme("weights-int8", 6, 32, None), (0.01, 0.05), "6 bits"),
        (ImportedScheme(None, 16, None, "bfloat16"), (0.001, 0.0005), "not quantized (bfloat16)"),
        (ImportedScheme(None, 32, None, "float32"), (0.001, 0.0005), "not quantized (float32)"),
        (None, (0.001, 0.0005), "nothing says how"),
    ],
)
def test_margins_by_default_are_those_of_the_bits_that_were_found(
    tmp_path: Path, found: ImportedScheme | None, margins: tuple[float, float], words: str
) -> None:
    reporter = RecordingReporter()
    resolved = with_margins_of_import(params_of(tmp_path, ""), found, reporter)
    assert (resolved.max_increase, resolved.max_mean_kl) == margins
    (event,) = reporter.events
    assert (event.code, words in event.message) == ("margins-of-import", True)


def test_what_a_recipe_says_holds_whatever_was_imported(tmp_path: Path) -> None:
    asked = params_of(tmp_path, f"gate:\n{GATE}")
    assert (asked.defaults, asked.max_increase, asked.max_mean_kl) == ((), 0.5, 0.5)
    half = params_of(tmp_path, "gate: {kl: {max_mean: 0.5}}\n")
    assert half.defaults == ("max_increase",)
    resolved = with_margins_of_import(half, ImportedScheme("gptq", 8, 128, None), RecordingReporter())
    assert (resolved.max_increase, resolved.max_mean_kl) == (0.01, 0.5)


def test_widths_between_those_with_margins_are_held_to_the_tighter_ones() -> None:
    assert [default_margin(DEFAULT_MAX_INCREASE, bits) for bits in (1, 2, 5, 9, 64)] == [
        0.03,
        0.03,
        0.01,
        0.001,
        0.001,
    ]


def test_an_import_is_measured_look_by_look_only_for_margins_that_are_known_before(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="imports without margins of the recipe's own"):
        params_of(tmp_path, "gate: {evaluation: adaptive}\n")
    known = params_of(tmp_path, f"gate:\n{GATE}  evaluation: adaptive\n")
    assert known.look_seed is not None
