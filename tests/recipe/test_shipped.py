"""Every recipe in recipes/ loads, is named like its file, and asks for what its model's layers can give."""

from pathlib import Path

import pytest

from quantflow.recipe.load import load_recipe

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
WIDTHS = {
    "llama13b_awq": (5120, 13824),
    "llama8b_gptq": (4096, 14336),
    "qwen2.5-7b_awq": (3584, 18944),
    "quickstart": (576, 1536),
    "quickstart_int8": (576, 1536),
    "nightly": (576, 1536),
    "qwen2.5-7b_int8_onnx": (3584, 18944),
}
"""Inputs of the layers, as the models' config.json say."""


def test_those_that_are_promised_are_there() -> None:
    assert WIDTHS.keys() <= {path.stem for path in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_loads_and_has_its_file_s_name(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.name == path.stem
    assert all(Path(name).is_file() for name in recipe.data.files)


@pytest.mark.parametrize(("name", "widths"), WIDTHS.items())
def test_group_sizes_divide_the_layers_of_the_model(name: str, widths: tuple[int, ...]) -> None:
    recipe = load_recipe(next(path for path in RECIPES if path.stem == name))
    for artifact in recipe.artifacts:
        size = getattr(artifact, "group_size", None) or getattr(artifact, "block_size", None) or 1
        assert all(width % size == 0 for width in widths)


@pytest.mark.parametrize("name", ["llama13b_awq", "llama8b_gptq", "qwen2.5-7b_awq"])
def test_recipes_for_release_measure_as_one_serves_and_kl_exactly(name: str) -> None:
    recipe = load_recipe(next(path for path in RECIPES if path.stem == name))
    assert recipe.runtime.name == "vllm"
    assert recipe.gate.kl.runtime == "torch"


def test_the_nightly_recipe_has_two_artifacts_of_the_quickstart_s_model() -> None:
    nightly, quickstart = (
        load_recipe(next(path for path in RECIPES if path.stem == name)) for name in ("nightly", "quickstart")
    )
    assert [artifact.format for artifact in nightly.artifacts] == ["awq", "gptq"]
    assert nightly.model == quickstart.model


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_is_told_with_its_defaults_and_no_warning(path: Path) -> None:
    told = load_recipe(path).resolved()
    assert told["name"] == path.stem and told["artifacts"]
