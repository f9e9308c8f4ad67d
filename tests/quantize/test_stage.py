"""The quantize and check stages on a tiny model, from a source and windows on disk to codes on disk."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from quantflow.calibrate.stream import calibrate_blocks
from quantflow.data.windows import CALIBRATION_FILE, PACKED, make_windows, save_windows
from quantflow.errors import QuantizationError, RecipeError, SourceError
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize import check, stage
from quantflow.quantize.block import quantize_block_awq
from quantflow.quantize.codes import dequantize, load_block
from quantflow.quantize.params import CheckParams, QuantizeParams
from quantflow.source.checkpoint import Checkpoint, save_checkpoint
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config

PARAMS = QuantizeParams(method="awq", bits=4, group_size=32, device="cpu", batch_tokens=64)


def inputs_for(folder: Path, tmp_path: Path, model_type: str = "llama") -> dict[str, Path]:
    source, data = tmp_path / "source", tmp_path / "data"
    source.mkdir()
    data.mkdir()
    save_checkpoint(
        source, Checkpoint(folder, "0" * 64, "folder", str(folder), "float32", model_type, 0, 0, {})
    )
    tokens = np.random.default_rng(0).integers(0, 400, (8, 32)).astype(np.int32)
    save_windows(data / CALIBRATION_FILE, make_windows(list(tokens), [PACKED] * 8))
    return {"source": source, "data": data}


def quantize(folder: Path, tmp_path: Path, name: str = "out") -> Path:
    output = tmp_path / name
    output.mkdir()
    inputs = {role: tmp_path / role for role in ("source", "data")}
    if not inputs["source"].exists():
        inputs = inputs_for(folder, tmp_path)
    stage.run(PARAMS, inputs, output, RecordingReporter())
    return output


def test_every_linear_of_every_block_gets_codes_near_its_weight(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config())
    output = quantize(folder, tmp_path)
    reader = SafetensorsReader(folder)
    names: set[str] = set()
    for index in range(3):
        block = load_block(output / "codes" / f"block-{index:05d}.safetensors")
        for name, codes in block.linears.items():
            names.add(name)
            weight = reader.read(f"{name}.weight")
            effective = dequantize(codes)
            # Undo the folds: columns carry the scale of what comes before, rows that of what comes after.
            for folded, scale in block.folds.items():
                if folded == f"{name}.weight":
                    effective = effective * scale.unsqueeze(1)
                if folded.rpartition(".")[0] in source_of(name):
                    effective = effective / scale
            assert (effective - weight).norm() < 0.2 * weight.norm(), name
    assert len(names) == 3 * 7
    searches = json.loads((output / "quantize.json").read_text())["searches"]
    assert sorted(searches) == sorted(
        f"model.layers.{i}.{unit}" for i in range(3) for unit in ("qkv", "gate_up", "down")
    )


def source_of(linear: str) -> tuple[str, ...]:
    """The module before a linear that its input scale is folded into."""
    block, _, name = linear.partition(".self_attn.") if ".self_attn." in linear else linear.partition(".mlp.")
    before = {
        "q_proj": "input_layernorm",
        "k_proj": "input_layernorm",
        "v_proj": "input_layernorm",
        "gate_proj": "post_attention_layernorm",
        "up_proj": "post_attention_layernorm",
        "down_proj": "mlp.up_proj",
    }
    return (f"{block}.{before[name]}",) if name in before else ()


def test_value_scales_are_folded_into_v_where_shapes_allow(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config(num_key_value_heads=4))
    block = load_block(quantize(folder, tmp_path) / "codes" / "block-00000.safetensors")
    assert "model.layers.0.self_attn.v_proj.weight" in block.folds


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config())
    first, second = quantize(folder, tmp_path, "first"), quantize(folder, tmp_path, "second")
    for path in sorted(p for p in first.rglob("*") if p.is_file()):
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()


def test_a_weight_that_spoils_the_activations_is_refused_with_its_block(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config())
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.2.self_attn.k_proj.weight"][0, 0] = torch.nan
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(QuantizationError, match="block 2"):
        quantize(folder, tmp_path)


def test_a_weight_that_is_not_finite_is_refused_by_name(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config())
    decoder = StreamedDecoder(folder, SafetensorsReader(folder))
    ids = torch.randint(0, 400, (2, 32), generator=torch.Generator().manual_seed(0))
    states = BlockPass(decoder, [ids], PassProgress(RecordingReporter(progress_folder=tmp_path / "progress")))
    blocks = calibrate_blocks(states, decoder.family.units, lambda batches: None)
    block = next(blocks)
    block.module.get_submodule("mlp.up_proj").get_parameter("weight").data[0, 0] = torch.nan
    with pytest.raises(QuantizationError, match=r"layers\.0\.mlp\.up_proj: its weight holds NaN"):
        quantize_block_awq(block, decoder.family, bits=4, group_size=32, stored_as=torch.float16)


def check_params(group_size: int, length: int = 64) -> CheckParams:
    return CheckParams(
        group_sizes={"artifacts[0].group_size": group_size},
        window_lengths={"data.evaluation.length": length},
    )


def test_check_refuses_windows_beyond_the_context_of_the_model(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config(max_position_embeddings=128))
    inputs = inputs_for(folder, tmp_path)
    (tmp_path / "out").mkdir()
    with pytest.raises(RecipeError, match="windows of 129 tokens do not fit"):
        check.run(check_params(32, 129), inputs, tmp_path / "out", RecordingReporter())
    check.run(check_params(32, 128), inputs, tmp_path / "out", RecordingReporter())


@pytest.mark.parametrize("blocks", [2, 4])
def test_check_refuses_weights_with_more_or_fewer_blocks_than_the_config(tmp_path: Path, blocks: int) -> None:
    folder = random_model(tmp_path / "model", tiny_config())
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": 3', f'"num_hidden_layers": {blocks}'))
    inputs = inputs_for(folder, tmp_path)
    (tmp_path / "out").mkdir()
    with pytest.raises(SourceError, match=f"says {blocks} blocks, the weights hold 3"):
        check.run(check_params(32), inputs, tmp_path / "out", RecordingReporter())


def test_check_names_the_layer_and_the_group_sizes_that_fit(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config(intermediate_size=96))
    inputs = inputs_for(folder, tmp_path)
    (tmp_path / "out").mkdir()
    with pytest.raises(RecipeError, match=r"group_size 64 does not divide the 96 .*down_proj") as raised:
        check.run(check_params(64), inputs, tmp_path / "out", RecordingReporter())
    assert raised.value.hint == "Group sizes that divide every layer: 32."
    check.run(check_params(32), inputs, tmp_path / "out", RecordingReporter())


def test_check_says_so_where_no_group_size_fits(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config(intermediate_size=172))
    inputs = inputs_for(folder, tmp_path)
    (tmp_path / "out").mkdir()
    with pytest.raises(RecipeError, match=r"down_proj has 172 input channels, which no group size divides"):
        check.run(check_params(32), inputs, tmp_path / "out", RecordingReporter())


def test_check_refuses_an_architecture_it_does_not_know(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config())
    inputs = inputs_for(folder, tmp_path, model_type="mamba")
    (tmp_path / "out").mkdir()
    with pytest.raises(RecipeError, match="mamba"):
        check.run(check_params(32), inputs, tmp_path / "out", RecordingReporter())


def test_the_scale_of_a_norm_is_what_its_stored_weight_divides_out(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config(), dtype=torch.bfloat16)
    source = tmp_path / "source"
    inputs_for(folder, tmp_path)
    save_checkpoint(
        source, Checkpoint(folder, "0" * 64, "folder", str(folder), "bfloat16", "llama", 0, 0, {})
    )
    block = load_block(quantize(folder, tmp_path) / "codes" / "block-00001.safetensors")
    name = "model.layers.1.input_layernorm.weight"
    norm, scale = SafetensorsReader(folder).read(name).float(), block.folds[name]
    stored = (norm / scale).bfloat16().float()
    torch.testing.assert_close(norm / stored, scale, rtol=1e-6, atol=0)
