"""What a recipe may say of serving."""

from pathlib import Path

import pytest

from quantflow.errors import RecipeError
from quantflow.recipe.load import load_recipe
from tests.tiny_run import write_recipe


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("memory: {}", "there is no limit"),
        ("memory: {max_ratio: 0}", "more than 0"),
        ("memory: {max_bytes: 1.5}", "whole number"),
        ("speed: {min_speedup: -1}", "more than 0"),
        ("speed: {metric: tokens}", "`tokens` is not allowed"),
        ("speed: {concurrency: []}", "must not be empty"),
        ("speed: {concurrency: [0]}", "at least 1"),
        ("speed: {rounds: 2}", "at least 3"),
    ],
)
def test_a_mistake_in_the_gate_is_named_with_its_key(tmp_path: Path, line: str, words: str) -> None:
    path = write_recipe(tmp_path, tmp_path)
    path.write_text(path.read_text().replace("gate:\n", f"gate:\n  {line}\n"))
    with pytest.raises(RecipeError, match=words):
        load_recipe(path)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("gate.kl.runtime=vllm", "`vllm` is not allowed"),
        ("runtime.name=vlm", "Did you mean `vllm`"),
        ("runtime.vllm.dtype=int8", "`int8` is not allowed"),
        ("runtime.vllm.cache_gib=0", "more than 0"),
    ],
)
def test_a_mistake_is_named_with_its_key(tmp_path: Path, override: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        load_recipe(write_recipe(tmp_path, tmp_path), (override,))


def test_serving_is_not_measured_unless_asked_for(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, tmp_path))
    assert recipe.gate.speed is None
    assert recipe.gate.memory is None
    assert recipe.runtime.name == "torch"


def test_a_cache_is_given_in_gib(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, tmp_path), ("runtime.vllm.cache_gib=1.5",))
    assert recipe.runtime.vllm.cache_bytes == 3 << 29
