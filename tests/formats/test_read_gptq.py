"""Damaged and foreign GPTQ artifacts are refused, and the tensor or setting at fault is named."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quantflow.errors import ArtifactError
from quantflow.formats.params import AssembleParams
from quantflow.formats.read import open_artifact
from quantflow.quantize.codes import BlockCodes
from quantflow.quantize.params import Scheme
from tests.formats.assembling import GPTQ_PARAMS, Assembled, assembled, rounded_blocks

LINEAR = "model.layers.1.mlp.up_proj"
ACT = Scheme(method="gptq", bits=4, group_size=32, symmetric=True, desc_act=True)
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def gptq(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Assembled:
    blocks = rounded_blocks(tiny_llama, scheme=GPTQ_PARAMS.scheme)
    return assembled(tmp_path_factory.mktemp("gptq"), tiny_llama, blocks, "bfloat16", params=GPTQ_PARAMS)


@pytest.fixture(scope="module")
def act_order(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Assembled:
    """With groups that are not consecutive."""
    generator = torch.Generator().manual_seed(2)
    blocks = []
    for block in rounded_blocks(tiny_llama, scheme=ACT):
        linears = {}
        for name, codes in block.linears.items():
            order = torch.randperm(codes.q.shape[1], generator=generator)
            linears[name] = replace(codes, group_index=(order // 32).to(torch.int32))
        blocks.append(BlockCodes(linears, block.folds))
    params = AssembleParams(name="act", format="gptq", scheme=ACT)
    return assembled(tmp_path_factory.mktemp("act"), tiny_llama, tuple(blocks), "bfloat16", params=params)


def changed(
    artifact: Assembled, folder: Path, change: Callable[[Tensors], object] = len, **settings: Any
) -> Path:
    config = json.loads((artifact.folder / "config.json").read_text())
    config["quantization_config"] |= settings
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(artifact.folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_an_artifact_that_is_only_copied_is_still_read(gptq: Assembled, tmp_path: Path) -> None:
    name = f"{LINEAR}.weight"
    copy = open_artifact(changed(gptq, tmp_path))
    assert torch.equal(copy.read(name), open_artifact(gptq.folder).read(name))


@pytest.mark.parametrize("part", ["qweight", "qzeros", "scales", "g_idx"])
def test_a_missing_part_of_a_linear_is_named(gptq: Assembled, tmp_path: Path, part: str) -> None:
    folder = changed(gptq, tmp_path, lambda tensors: tensors.pop(f"{LINEAR}.{part}"))
    with pytest.raises(ArtifactError, match=f"{LINEAR}.{part}"):
        open_artifact(folder)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("qzeros", lambda t: t[:-1].contiguous()),
        ("qzeros", lambda t: t[:, :-1].contiguous()),
        ("qzeros", lambda t: t.to(torch.int64)),
        ("scales", lambda t: t[:, :-8].contiguous()),
        ("scales", lambda t: t.float()),
        ("qweight", lambda t: t[:-1].contiguous()),
        ("qweight", lambda t: t.reshape(-1)),
        ("g_idx", lambda t: t.reshape(1, -1)),
        ("g_idx", lambda t: t[:-1].contiguous()),
        ("g_idx", lambda t: t.to(torch.int64)),
        ("qzeros", lambda t: t[:0]),
    ],
)
def test_a_part_of_another_shape_or_dtype_is_named(
    gptq: Assembled, tmp_path: Path, part: str, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    name = f"{LINEAR}.{part}"
    folder = changed(gptq, tmp_path, lambda tensors: tensors.update({name: change(tensors[name])}))
    with pytest.raises(ArtifactError) as refused:
        open_artifact(folder)
    assert name in refused.value.where


@pytest.mark.parametrize(
    "settings",
    [
        {"checkpoint_format": "gptq_v2"},
        {"checkpoint_format": None},
        {"bits": 5},
        {"bits": "4"},
        {"bits": True},
        {"group_size": 0},
        {"group_size": "32"},
        {"sym": None},
        {"desc_act": 1},
        {"dynamic": ["-:x"]},
        {"dynamic": {"+:.*down.*": {"bits": 8}}},
        {"dynamic": {"-:(": {}}},
        {"dynamic": {"-:a{99999999999999999999}": {}}},
    ],
)
def test_settings_of_another_layout_are_refused(
    gptq: Assembled, tmp_path: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(ArtifactError, match=next(iter(settings))):
        open_artifact(changed(gptq, tmp_path, **settings))


def test_version_2_is_refused_by_name_because_its_zero_points_are_other_ones(
    gptq: Assembled, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match="'gptq_v2'") as refused:
        open_artifact(changed(gptq, tmp_path, checkpoint_format="gptq_v2"))
    assert "off by one" in refused.value.hint


@pytest.mark.parametrize(("group_size", "bits"), [(64, 4), (32, 8), (32, 2)])
def test_another_group_size_or_width_than_was_written_is_noticed(
    gptq: Assembled, tmp_path: Path, group_size: int, bits: int
) -> None:
    with pytest.raises(ArtifactError, match=f"{bits} bits in groups of {group_size}"):
        open_artifact(changed(gptq, tmp_path, group_size=group_size, bits=bits))


def test_a_zero_point_that_wraps_around_is_never_computed_with(gptq: Assembled, tmp_path: Path) -> None:
    folder = changed(gptq, tmp_path, lambda tensors: tensors[f"{LINEAR}.qzeros"].fill_(-1))
    with pytest.raises(ArtifactError, match=f"{LINEAR}.qzeros: holds a zero point that wraps"):
        open_artifact(folder).read(f"{LINEAR}.weight")


def test_a_scale_that_is_not_finite_is_never_computed_with(gptq: Assembled, tmp_path: Path) -> None:
    folder = changed(gptq, tmp_path, lambda tensors: tensors[f"{LINEAR}.scales"].fill_(float("nan")))
    with pytest.raises(ArtifactError, match=f"{LINEAR}.scales: holds NaN or infinite"):
        open_artifact(folder).read(f"{LINEAR}.weight")


def test_zero_points_that_a_runtime_would_not_look_at_are_refused(gptq: Assembled, tmp_path: Path) -> None:
    folder = changed(gptq, tmp_path, lambda tensors: tensors[f"{LINEAR}.qzeros"].fill_(0x66666666))
    with pytest.raises(ArtifactError, match="although quantization_config says sym"):
        open_artifact(folder).read(f"{LINEAR}.weight")


def test_mixed_groups_are_read_where_config_tells_of_them(act_order: Assembled) -> None:
    reader = open_artifact(act_order.folder)
    codes = act_order.blocks[1].linears[LINEAR]
    assert codes.group_index is not None
    index = codes.group_index.long()
    expected = (codes.q.float() - 8) * codes.scales.float()[:, index]
    assert torch.equal(reader.read(f"{LINEAR}.weight"), expected)


def test_mixed_groups_that_a_runtime_would_not_look_at_are_refused(
    act_order: Assembled, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match=r"not consecutive inputs although .* desc_act"):
        open_artifact(changed(act_order, tmp_path, desc_act=False)).read(f"{LINEAR}.weight")


@pytest.mark.parametrize("spoil", [lambda t: t.fill_(0), lambda t: t.sub_(1), lambda t: t.add_(1)])
def test_groups_that_are_not_there_or_of_another_size_are_refused(
    act_order: Assembled, tmp_path: Path, spoil: Callable[[torch.Tensor], object]
) -> None:
    folder = changed(act_order, tmp_path, lambda tensors: spoil(tensors[f"{LINEAR}.g_idx"]))
    with pytest.raises(
        ArtifactError, match=f"{LINEAR}.g_idx: does not share 64 inputs out to 2 groups of 32"
    ):
        open_artifact(folder).read(f"{LINEAR}.weight")


@pytest.mark.parametrize("group_size", [-1, 32])
def test_a_linear_without_inputs_is_refused(gptq: Assembled, tmp_path: Path, group_size: int) -> None:
    first = "model.layers.0.mlp.down_proj"  # what is looked at before any other

    def emptied(tensors: Tensors) -> None:
        for part in ("qweight", "qzeros", "scales", "g_idx"):
            tensors[f"{first}.{part}"] = tensors[f"{first}.{part}"][:0]

    with pytest.raises(ArtifactError, match=f"{first}.* holds nothing"):
        open_artifact(changed(gptq, tmp_path, emptied, group_size=group_size))


def test_a_linear_that_dynamic_leaves_out_is_refused(gptq: Assembled, tmp_path: Path) -> None:
    folder = changed(gptq, tmp_path, dynamic={r"-:^model\.layers\.1\.mlp\.": {}})
    with pytest.raises(ArtifactError, match="is quantized although `dynamic` leaves it out"):
        open_artifact(folder)


def test_a_linear_stored_twice_is_refused(gptq: Assembled, tmp_path: Path) -> None:
    folder = changed(gptq, tmp_path, lambda tensors: tensors.update({f"{LINEAR}.weight": torch.ones(1)}))
    with pytest.raises(ArtifactError, match=f"{LINEAR}: is stored both"):
        open_artifact(folder)
