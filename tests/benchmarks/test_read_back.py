"""What other tools store is read as they mean it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.peers.read_back import PeerReader
from quantflow.errors import ArtifactError

OUT, IN, GROUP = 16, 32, 16
LINEAR = "model.layers.0.mlp.up_proj"


def packed(codes: Tensor) -> Tensor:
    """Codes from 0 to 15, eight to an int32 along the rows, lowest bits first: [rows, n] → [rows, n / 8]."""
    words = [
        [
            sum(int(code) << (4 * place) for place, code in enumerate(row[at : at + 8]))
            for at in range(0, len(row), 8)
        ]
        for row in codes.tolist()
    ]
    return torch.tensor(words, dtype=torch.int64).to(torch.int32)


@pytest.fixture
def codes() -> Tensor:
    return torch.randint(0, 16, (OUT, IN), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def points() -> Tensor:
    return torch.randint(1, 16, (OUT, IN // GROUP), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def scales() -> Tensor:
    return torch.rand(OUT, IN // GROUP, generator=torch.Generator().manual_seed(2)).half()


def artifact(folder: Path, settings: dict[str, object], tensors: dict[str, Tensor]) -> PeerReader:
    (folder / "config.json").write_text(json.dumps({"quantization_config": settings}))
    stored = {f"{LINEAR}.{part}": tensor.contiguous() for part, tensor in tensors.items()}
    save_file({**stored, "model.norm.weight": torch.ones(IN)}, folder / "model.safetensors")
    return PeerReader(folder)


def meant(codes: Tensor, points: Tensor, scales: Tensor) -> Tensor:
    return (codes - points.repeat_interleave(GROUP, 1)) * scales.float().repeat_interleave(GROUP, 1)


def test_compressed_tensors_with_zero_points(
    tmp_path: Path, codes: Tensor, points: Tensor, scales: Tensor
) -> None:
    tensors = {
        "weight_packed": packed(codes),
        "weight_scale": scales,
        "weight_zero_point": packed(points.T).T,
        "weight_shape": torch.tensor([OUT, IN]),
    }
    reader = artifact(tmp_path, {"quant_method": "compressed-tensors"}, tensors)
    assert reader.names() == {f"{LINEAR}.weight", "model.norm.weight"}
    assert torch.equal(reader.read(f"{LINEAR}.weight"), meant(codes, points, scales))
    assert torch.equal(reader.read("model.norm.weight"), torch.ones(IN))


def test_compressed_tensors_without_zero_points_are_symmetric(
    tmp_path: Path, codes: Tensor, scales: Tensor
) -> None:
    tensors = {"weight_packed": packed(codes), "weight_scale": scales}
    reader = artifact(tmp_path, {"quant_method": "compressed-tensors"}, tensors)
    middle = torch.full_like(scales, 8)
    assert torch.equal(reader.read(f"{LINEAR}.weight"), meant(codes, middle, scales))


@pytest.mark.parametrize(("version", "missing"), [("gptq", 1), ("gptq_v2", 0)])
def test_gptq_stores_zero_points_minus_one_in_version_1(
    tmp_path: Path, codes: Tensor, points: Tensor, scales: Tensor, version: str, missing: int
) -> None:
    tensors = {
        "qweight": packed_rows(codes),
        "qzeros": packed((points - missing).T),
        "scales": scales.T,
        "g_idx": torch.arange(IN, dtype=torch.int32) // GROUP,
    }
    reader = artifact(tmp_path, {"quant_method": "gptq", "checkpoint_format": version}, tensors)
    assert torch.equal(reader.read(f"{LINEAR}.weight"), meant(codes, points, scales))


def packed_rows(codes: Tensor) -> Tensor:
    """GPTQ's qweight, [in / 8, out]: the inputs of each output packed."""
    return packed(codes).T


def test_gptq_groups_in_any_order(tmp_path: Path, codes: Tensor, points: Tensor, scales: Tensor) -> None:
    order = torch.randperm(IN, generator=torch.Generator().manual_seed(3)) % (IN // GROUP)
    tensors = {
        "qweight": packed_rows(codes),
        "qzeros": packed((points - 1).T),
        "scales": scales.T,
        "g_idx": order.to(torch.int32),
    }
    reader = artifact(tmp_path, {"quant_method": "gptq"}, tensors)
    expected = (codes - points[:, order]) * scales.float()[:, order]
    assert torch.equal(reader.read(f"{LINEAR}.weight"), expected)


def test_a_layout_not_known_is_refused(tmp_path: Path, codes: Tensor) -> None:
    with pytest.raises(ArtifactError, match="bitsandbytes"):
        artifact(tmp_path, {"quant_method": "bitsandbytes"}, {"weight": codes})


def test_a_scale_that_is_no_number_is_refused(tmp_path: Path, codes: Tensor, scales: Tensor) -> None:
    scales[3, 1] = torch.nan
    tensors = {"weight_packed": packed(codes), "weight_scale": scales}
    reader = artifact(tmp_path, {"quant_method": "compressed-tensors"}, tensors)
    with pytest.raises(ArtifactError, match="NaN"):
        reader.read(f"{LINEAR}.weight")
