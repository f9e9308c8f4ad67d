"""Artifacts that keep units: which, how loaders are told, and that nothing else moves."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from quantflow.errors import QuantizationError, RecipeError
from quantflow.formats.assembly import load_assembly
from quantflow.formats.gptq_reader import open_gptq
from quantflow.formats.params import AssembleParams
from quantflow.formats.read import open_artifact
from quantflow.model.families import family_of
from quantflow.model.units import kept_units
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.codes import BlockCodes, dequantize
from quantflow.quantize.params import Scheme
from quantflow.quantize.search_space import SHRINKAGE
from tests.formats.assembling import AWQ, GPTQ, GPTQ_PARAMS, PARAMS, assembled, rounded_blocks
from tests.tiny_models import random_model, tiny_config

LLAMA = family_of("llama")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many key and value heads as query heads, so that scales are folded into values, too; with biases."""
    config = tiny_config(num_key_value_heads=4, attention_bias=True)
    return random_model(tmp_path_factory.mktemp("source") / "model", config, dtype=torch.bfloat16)


def keeping(params: AssembleParams, *keep: str) -> AssembleParams:
    return params.model_copy(update={"keep": keep})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    reader = open_artifact(folder)
    return {name: reader.read(name) for name in sorted(reader.names())}


@pytest.mark.parametrize("params", [PARAMS, GPTQ_PARAMS])
def test_a_kept_unit_has_the_source_s_own_weights_and_is_named_in_the_provenance(
    source: Path, tmp_path: Path, params: AssembleParams
) -> None:
    blocks = rounded_blocks(source, scheme=params.scheme, into_linears=True)
    artifact = assembled(tmp_path, source, blocks, "bfloat16", params=keeping(params, "*.1.down", "*.2.o"))
    kept = [f"model.layers.{linear}.weight" for linear in ("1.mlp.down_proj", "2.self_attn.o_proj")]
    stored, original = weights(artifact.folder), SafetensorsReader(source)
    for name in kept:
        assert torch.equal(stored[name], original.read(name))
    precisions = json.loads((artifact.folder / "quantflow.json").read_text())["precisions"]
    assert precisions == {
        "lm_head": "bfloat16",
        **{f"model.layers.{i}.{unit}": "int4" for i in range(3) for unit in LLAMA.units},
        "model.layers.1.down": "bfloat16",
        "model.layers.2.o": "bfloat16",
    }
    assert load_assembly(artifact.folder.parent).kept_units == ("model.layers.1.down", "model.layers.2.o")


def test_a_kept_unit_takes_back_the_scale_that_was_folded_before_it(source: Path, tmp_path: Path) -> None:
    blocks = rounded_blocks(source, into_linears=True)
    whole = weights(assembled(tmp_path / "whole", source, blocks, "bfloat16").folder)
    mixed = weights(
        assembled(tmp_path / "mixed", source, blocks, "bfloat16", params=keeping(PARAMS, "*.1.*")).folder
    )
    original = SafetensorsReader(source)
    for name, weight in mixed.items():
        expected = original.read(name) if ".layers.1." in name else whole[name]
        assert torch.equal(weight, expected), name


def test_codes_before_a_kept_unit_stay_and_their_scales_take_the_fold_back(
    source: Path, tmp_path: Path
) -> None:
    blocks = rounded_blocks(source, into_linears=True)
    artifact = assembled(tmp_path, source, blocks, "bfloat16", params=keeping(PARAMS, "model.layers.0.o"))
    name = "model.layers.0.self_attn.v_proj"
    codes, scale = blocks[0].linears[name], blocks[0].folds[f"{name}.weight"]
    expected = replace(codes, scales=(codes.scales.float() * scale.unsqueeze(1)).half())
    stored = weights(artifact.folder)
    assert torch.equal(stored[f"{name}.weight"], dequantize(expected))
    assert torch.equal(stored[f"{name}.bias"], SafetensorsReader(source).read(f"{name}.bias"))
    # Without the kept unit its bias has the scale divided out, so that this test can tell.
    folded = SafetensorsReader(source).read(f"{name}.bias").float() / scale
    assert not torch.equal(folded.bfloat16(), stored[f"{name}.bias"])


def test_a_kept_unit_before_a_quantized_one_carries_its_fold(source: Path, tmp_path: Path) -> None:
    blocks = rounded_blocks(source, into_linears=True)
    artifact = assembled(tmp_path, source, blocks, "bfloat16", params=keeping(PARAMS, "model.layers.0.qkv"))
    name = "model.layers.0.self_attn.v_proj.weight"
    expected = SafetensorsReader(source).read(name).float() / blocks[0].folds[name].unsqueeze(1)
    assert torch.equal(weights(artifact.folder)[name], expected.bfloat16())


def test_awq_names_the_layers_that_runtimes_leave_alone(source: Path, tmp_path: Path) -> None:
    params = keeping(PARAMS, "model.layers.1.gate_up")
    artifact = assembled(tmp_path, source, rounded_blocks(source), "bfloat16", params=params)
    settings = json.loads((artifact.folder / "config.json").read_text())["quantization_config"]
    up, gate = (f"model.layers.1.mlp.{name}_proj" for name in ("up", "gate"))
    assert settings["modules_to_not_convert"] == ["lm_head", gate, up]


def test_gptq_names_the_layers_that_runtimes_leave_alone_fused_ones_too(source: Path, tmp_path: Path) -> None:
    blocks = rounded_blocks(source, scheme=GPTQ)
    params = keeping(GPTQ_PARAMS, "model.layers.1.gate_up")
    artifact = assembled(tmp_path, source, blocks, "bfloat16", params=params)
    settings = json.loads((artifact.folder / "config.json").read_text())["quantization_config"]
    assert settings["dynamic"] == {r"-:^model\.layers\.1\.mlp\.(gate_proj|up_proj|gate_up_proj)$": {}}
    gate = "model.layers.1.mlp.gate_proj"
    assert gate not in open_gptq(artifact.folder, settings).quantized
    assert gate.replace("1", "0") in open_gptq(artifact.folder, settings).quantized


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("group_size", [-1, 32])
@pytest.mark.parametrize("symmetric", [True, False])
def test_gptq_of_every_width_reads_back_what_the_codes_stand_for(
    source: Path, tmp_path: Path, bits: Any, group_size: int, symmetric: bool
) -> None:
    scheme = Scheme(method="gptq", bits=bits, group_size=group_size, symmetric=symmetric)
    blocks = rounded_blocks(source, scheme=scheme)
    params = AssembleParams(name="any", format="gptq", scheme=scheme)
    artifact = assembled(tmp_path, source, blocks, "bfloat16", params=params)
    stored = weights(artifact.folder)
    for block in blocks:
        for name, codes in block.linears.items():
            assert torch.equal(stored[f"{name}.weight"], dequantize(codes)), name
    provenance = json.loads((artifact.folder / "quantflow.json").read_text())
    assert provenance["precisions"]["model.layers.0.qkv"] == f"int{bits}"
    assert (provenance["symmetric"], provenance["damping"]) == (symmetric, 0.01)
    assert provenance["shrinkage"] == SHRINKAGE


def test_codes_that_gptq_cannot_hold_are_refused_with_their_layer(source: Path, tmp_path: Path) -> None:
    asymmetric = Scheme(method="gptq", bits=4, group_size=32)
    name = "model.layers.0.self_attn.q_proj"
    for scheme, zero_point, message in (
        (GPTQ, 7, "zero points beside the middle"),
        (asymmetric, 0, "zero point is 0"),
    ):
        first, *others = rounded_blocks(source, scheme=scheme)
        odd = replace(
            first.linears[name], zero_points=torch.full_like(first.linears[name].zero_points, zero_point)
        )
        blocks = (BlockCodes({**first.linears, name: odd}, {}), *others)
        params = AssembleParams(name="odd", format="gptq", scheme=scheme)
        with pytest.raises(QuantizationError, match=message) as refused:
            assembled(tmp_path / str(zero_point), source, blocks, "bfloat16", params=params)
        assert refused.value.where == name


def test_patterns_mean_whole_units() -> None:
    assert kept_units(("model.layers.1.qkv",), LLAMA, 3) == {"model.layers.1.qkv"}
    assert kept_units(("*.down",), LLAMA, 2) == {"model.layers.0.down", "model.layers.1.down"}
    assert kept_units(("model.layers.[02].o", "lm_head"), LLAMA, 3) == {
        "model.layers.0.o",
        "model.layers.2.o",
    }
    assert kept_units(("*.1.o", "model.layers.1.o", "model.layers.1.?"), LLAMA, 3) == {"model.layers.1.o"}
    assert kept_units(("model.layers.[!0].down",), LLAMA, 2) == {"model.layers.1.down"}
    # Two digits are no range of numbers.
    assert kept_units(("model.layers.1[01].o",), LLAMA, 12) == {f"model.layers.{i}.o" for i in (10, 11)}
    assert kept_units((), LLAMA, 3) == frozenset()


@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        ("model.layers.1.dwn", "no unit 'model.layers.1.dwn'", "Did you mean model.layers.1.down?"),
        (
            "model.layers.3.down",
            "no unit",
            "Units are model.layers.0.qkv to model.layers.2.down, and lm_head.",
        ),
        ("*.q_proj", "means a layer and not a unit", "Name the unit: model.layers.0.qkv."),
        ("MODEL.LAYERS.1.DOWN", "no unit", "Units are model.layers.0.qkv"),
        ("model.layers.1.down ", "no unit 'model.layers.1.down '", "Did you mean model.layers.1.down?"),
        ("model.layers.[1.down", "no unit", "Did you mean model.layers.1.down?"),
        ("model.layers.1", "no unit", "Units are model.layers.0.qkv"),
        ("\n", "no unit", "Units are model.layers.0.qkv"),
        ("*", "keeps every unit", "format: hf"),
        ("model.layers.[012].*", "keeps every unit", "format: hf"),
    ],
)
def test_what_means_no_unit_is_refused_with_the_nearest(pattern: str, message: str, hint: str) -> None:
    with pytest.raises(RecipeError, match=message) as refused:
        kept_units((pattern,), LLAMA, 3, "artifacts[0].keep")
    assert hint in refused.value.hint
    assert refused.value.where == "artifacts[0].keep"


def test_scheme_settings_that_awq_does_not_use_are_not_in_its_provenance(
    source: Path, tmp_path: Path
) -> None:
    artifact = assembled(tmp_path, source, rounded_blocks(source), "bfloat16")
    provenance = json.loads((artifact.folder / "quantflow.json").read_text())
    assert AWQ.damping == 0.01
    assert provenance.keys() & {"damping", "desc_act", "static_groups", "shrinkage"} == set()
