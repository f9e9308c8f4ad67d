"""The check stage: what a format cannot hold and what a recipe keeps is looked at before hours are spent."""

from pathlib import Path
from typing import Any

import pytest

from quantflow.errors import RecipeError
from quantflow.quantize import check
from quantflow.quantize.params import CheckParams, PlannedArtifact, Scheme
from quantflow.source.checkpoint import Checkpoint, save_checkpoint
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config


def gptq_check(tmp_path: Path, keep: tuple[str, ...] = (), **scheme: Any) -> RecordingReporter:
    """Check a GPTQ artifact of a model whose keys are 48 wide and whose `down` reads 160."""
    reporter = RecordingReporter()
    source = tmp_path / "source"
    if not source.exists():
        config = tiny_config(
            hidden_size=96, intermediate_size=160, num_attention_heads=6, num_key_value_heads=3
        )
        source.mkdir()
        folder = random_model(tmp_path / "model", config)
        save_checkpoint(
            source, Checkpoint(folder, "0" * 64, "folder", str(folder), "float32", "llama", 0, 0, {})
        )
    (tmp_path / "out").mkdir(exist_ok=True)
    settings = {"method": "gptq", "bits": 4, "group_size": 32, "symmetric": True} | scheme
    artifact = PlannedArtifact(format="gptq", scheme=Scheme.model_validate(settings), keep=keep)
    params = CheckParams(artifacts={"artifacts[1]": artifact}, window_lengths={})
    check.run(params, {"source": source}, tmp_path / "out", reporter)
    return reporter


def test_check_refuses_what_the_format_cannot_pack_before_anything_is_computed(tmp_path: Path) -> None:
    gptq_check(tmp_path)
    with pytest.raises(
        RecipeError, match=r"k_proj has 48 outputs .* 3 bits in multiples of 32 outputs"
    ) as raised:
        gptq_check(tmp_path, bits=3)
    assert raised.value.where == "artifacts[1]"
    assert "`keep`" in raised.value.hint
    gptq_check(tmp_path, keep=("*.qkv",), bits=3)


def test_check_takes_a_whole_row_as_a_group_of_any_layer(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="group_size 128 does not divide the 160"):
        gptq_check(tmp_path, group_size=128)
    gptq_check(tmp_path, group_size=-1)


def test_check_refuses_to_keep_what_is_not_there_and_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no unit 'model.layers.3.down'") as raised:
        gptq_check(tmp_path, keep=("model.layers.3.down",))
    assert raised.value.where == "artifacts[1].keep"


@pytest.mark.parametrize(
    ("scheme", "codes"),
    [
        ({}, []),
        ({"bits": 8}, []),
        ({"symmetric": False}, ["no-marlin-kernel"]),
        ({"bits": 2}, ["no-marlin-kernel"]),
    ],
)
def test_check_tells_where_the_fast_kernels_do_not_take_an_artifact(
    tmp_path: Path, scheme: dict[str, Any], codes: list[str]
) -> None:
    assert gptq_check(tmp_path, **scheme).codes() == codes
