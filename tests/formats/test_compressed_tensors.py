"""llm-compressor's packed weights are read as compressed-tensors defines them; what is not read is named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quantflow.errors import ArtifactError
from quantflow.formats.imported import imported_scheme
from quantflow.formats.read import open_artifact

GROUP = 32
SETTINGS: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "weights": {
                "num_bits": 4,
                "type": "int",
                "strategy": "group",
                "group_size": GROUP,
                "symmetric": False,
            },
            "input_activations": None,
            "targets": ["Linear"],
        }
    },
}


def packed(values: torch.Tensor, bits: int) -> torch.Tensor:
    """compressed-tensors' packing: code i of a row is at its bits i·b and on, raised by 2^(b−1)."""
    words = torch.zeros(len(values), -(-values.shape[1] * bits // 32), dtype=torch.int64)
    for i in range(values.shape[1]):
        words[:, i * bits // 32] |= (values[:, i].long() + (1 << (bits - 1))) << (i * bits % 32)
    return words.to(torch.int32)


def compressed(
    model: Path, folder: Path, *, bits: int = 4, symmetric: bool = False
) -> dict[str, torch.Tensor]:
    """Write a model with the layers of its blocks packed; what their weights stand for."""
    shutil.copytree(model, folder)
    tensors = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    meant, stored = {}, {}
    for name, tensor in tensors.items():
        if tensor.dim() != 2 or ".layers." not in name:
            stored[name] = tensor
            continue
        rows, columns = tensor.shape
        low, high = -(1 << (bits - 1)), 1 << (bits - 1)
        q = torch.randint(low, high, (rows, columns), generator=generator)
        zero = torch.randint(low, high, (rows, columns // GROUP), generator=generator)
        scale = torch.rand(rows, columns // GROUP, generator=generator).bfloat16()
        if symmetric:
            zero = torch.zeros_like(zero)
        wide = q.float() - zero.float().repeat_interleave(GROUP, 1)
        meant[name] = wide * scale.float().repeat_interleave(GROUP, 1)
        stored |= {
            f"{name}_packed": packed(q, bits),
            f"{name}_scale": scale,
            f"{name}_shape": torch.tensor([rows, columns]),
        }
        if not symmetric:
            stored[f"{name}_zero_point"] = packed(zero.T.contiguous(), bits).T.contiguous()
    save_file(stored, folder / "model.safetensors")
    settings = json.loads(json.dumps(SETTINGS))
    settings["config_groups"]["group_0"]["weights"] |= {"num_bits": bits, "symmetric": symmetric}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))
    return meant


@pytest.mark.parametrize(("bits", "symmetric"), [(4, False), (4, True), (8, False)])
def test_packed_weights_are_what_they_stand_for(
    tiny_llama: Path, tmp_path: Path, bits: int, symmetric: bool
) -> None:
    meant = compressed(tiny_llama, tmp_path / "theirs", bits=bits, symmetric=symmetric)
    reader = open_artifact(tmp_path / "theirs")
    plain = load_file(tiny_llama / "model.safetensors")
    assert reader.names() == plain.keys()
    for name, weight in meant.items():
        assert torch.equal(reader.read(name), weight)
    assert torch.equal(reader.read("model.norm.weight"), plain["model.norm.weight"])


def test_its_settings_are_told_in_the_words_of_the_report(tiny_llama: Path, tmp_path: Path) -> None:
    compressed(tiny_llama, tmp_path / "theirs")
    scheme = imported_scheme(tmp_path / "theirs")
    assert (scheme.method, scheme.bits, scheme.group_size) == ("compressed-tensors", 4, GROUP)


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    edit(config)
    (folder / "config.json").write_text(json.dumps(config))


def group(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = config["quantization_config"]["config_groups"]["group_0"]
    return found


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (
            lambda c: c["quantization_config"].update(format="int-quantized"),
            "format 'int-quantized' are not read",
        ),
        (lambda c: group(c).update(input_activations={"num_bits": 8}), "quantizes activations too"),
        (lambda c: group(c)["weights"].update(num_bits=3), "one width of 4 or 8 bits"),
        (lambda c: group(c)["weights"].update(num_bits=8), "do not fit"),
        (lambda c: c.pop("quantization_config"), "no quantization_config|has no config.json with"),
    ],
)
def test_what_is_not_read_is_refused(
    tiny_llama: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], object], complaint: str
) -> None:
    compressed(tiny_llama, tmp_path / "theirs")
    change(tmp_path / "theirs", edit)
    with pytest.raises(ArtifactError, match=complaint):
        open_artifact(tmp_path / "theirs")


def test_a_missing_part_is_named(tiny_llama: Path, tmp_path: Path) -> None:
    compressed(tiny_llama, tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.0.mlp.up_proj.weight_scale"]
    save_file(tensors, path)
    with pytest.raises(ArtifactError, match="weight_scale"):
        open_artifact(tmp_path / "theirs")


def test_somebody_elses_plain_folder_is_read(tiny_llama: Path) -> None:
    assert "model.norm.weight" in open_artifact(tiny_llama).names()
