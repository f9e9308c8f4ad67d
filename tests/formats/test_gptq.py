"""AutoGPTQ's layout, version 1, against a second implementation from the format's description alone."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quantflow.formats.gptq import (
    linear_codes,
    linear_specs,
    linear_tensors,
    obstacle,
    pack,
    quantization_config,
    unpack,
)
from quantflow.quantize.codes import LinearCodes, dequantize
from quantflow.quantize.params import Scheme

WIDTHS = (2, 3, 4, 8)
OUTSIDE = ("lm_head",)


def described_packing(values: NDArray[np.uint8], bits: int) -> NDArray[np.int64]:
    """Words of one column as the format's tools fill them, value by value.

    Whole values from the lowest bits up. With 3 bits, 32 values go into three words: ten values and the lower
    two bits of the eleventh; its upper bit, ten values and the lowest bit of the twenty-second; its two upper
    bits and ten values.
    """
    words: list[int] = []
    if bits != 3:
        per_word = 32 // bits
        for start in range(0, len(values), per_word):
            words.append(sum(int(v) << (bits * n) for n, v in enumerate(values[start : start + per_word])))
    else:
        for start in range(0, len(values), 32):
            v = [int(value) for value in values[start : start + 32]]
            first = sum(v[n] << (3 * n) for n in range(10)) + ((v[10] & 0b011) << 30)
            second = (v[10] >> 2) + sum(v[11 + n] << (3 * n + 1) for n in range(10)) + ((v[21] & 0b001) << 31)
            third = (v[21] >> 1) + sum(v[22 + n] << (3 * n + 2) for n in range(10))
            words += [first, second, third]
    return np.array(words, dtype=np.int64)


def signed(words: NDArray[np.int64]) -> NDArray[np.int32]:
    return words.astype(np.uint32).view(np.int32)


def described_values(words: NDArray[np.int32], bits: int) -> list[int]:
    """Values from one column's words read as a single large number."""
    number = sum((int(word) & 0xFFFFFFFF) << (32 * n) for n, word in enumerate(words))
    return [number >> (bits * n) & ((1 << bits) - 1) for n in range(len(words) * 32 // bits)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, NDArray[np.uint8]]:
    bits = draw(st.sampled_from(WIDTHS))
    rows = {2: 16, 3: 32, 4: 8, 8: 4}[bits] * draw(st.integers(1, 3))
    columns = draw(st.integers(1, 4))
    content = draw(st.binary(min_size=rows * columns, max_size=rows * columns))
    return bits, np.frombuffer(content, dtype=np.uint8).reshape(rows, columns) & np.uint8(2**bits - 1)


def any_codes(
    bits: int, seed: int = 0, outputs: int = 32, inputs: int = 64, group_size: int = 32
) -> LinearCodes:
    """Codes with every zero point that the layout can store."""
    generator = torch.Generator().manual_seed(seed)
    groups = inputs // group_size
    return LinearCodes(
        q=torch.randint(2**bits, (outputs, inputs), generator=generator).to(torch.uint8),
        scales=torch.rand(outputs, groups, generator=generator).half(),
        zero_points=torch.randint(1, 2**bits, (outputs, groups), generator=generator).to(torch.uint8),
        bits=bits,
        group_size=group_size,
    )


def reloaded(codes: LinearCodes) -> LinearCodes:
    tensors = linear_tensors("layer", codes)
    parts = {name.removeprefix("layer"): tensor for name, tensor in tensors.items()}
    return linear_codes(parts, codes.bits, codes.group_size)


def described_weight(codes: LinearCodes) -> NDArray[np.float32]:
    """W[o, i] = (q - z) * s with z one more than is stored, from the packed words, one value at a time."""
    tensors = {name: tensor.numpy() for name, tensor in linear_tensors("x", codes).items()}
    index, scales = tensors["x.g_idx"], tensors["x.scales"]
    zeros = [described_values(row, codes.bits) for row in tensors["x.qzeros"]]
    outputs, inputs = codes.q.shape
    weight = np.zeros((outputs, inputs), dtype=np.float32)
    for o in range(outputs):
        column = described_values(tensors["x.qweight"][:, o], codes.bits)
        for i in range(inputs):
            weight[o, i] = np.float32(column[i] - (zeros[index[i]][o] + 1)) * np.float32(scales[index[i], o])
    return weight


@given(streams())
def test_packing_is_that_of_the_description_bit_for_bit(stream: tuple[int, NDArray[np.uint8]]) -> None:
    bits, values = stream
    packed = pack(torch.from_numpy(values.copy()), bits)
    assert packed.dtype == torch.int32
    for column in range(values.shape[1]):
        expected = signed(described_packing(values[:, column], bits))
        assert np.array_equal(packed[:, column].numpy(), expected)


@given(streams())
def test_unpacking_undoes_packing(stream: tuple[int, NDArray[np.uint8]]) -> None:
    bits, values = stream
    columns = [signed(described_packing(column, bits)) for column in values.T]
    packed = torch.from_numpy(np.stack(columns, axis=1))
    assert np.array_equal(unpack(packed, bits).numpy(), values)


def test_words_worked_by_hand() -> None:
    eight = torch.arange(8, dtype=torch.uint8).unsqueeze(1)
    assert pack(eight, 4).tolist() == [[0x76543210]]
    assert pack(torch.full((8, 1), 15, dtype=torch.uint8), 4).tolist() == [[-1]]
    eleventh = torch.zeros(32, 1, dtype=torch.uint8)
    eleventh[10] = 0b110  # its lower two bits end the first word, its upper one begins the second
    assert pack(eleventh, 3).flatten().tolist() == [-(1 << 31), 1, 0]
    assert pack(torch.tensor([[1], [2], [3], [255]], dtype=torch.uint8), 8).tolist() == [[-0xFCFDFF]]


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("group_size", [32, 64])
def test_a_linear_means_on_disk_what_its_codes_mean(bits: int, group_size: int) -> None:
    codes = any_codes(bits, group_size=group_size)
    assert np.array_equal(dequantize(codes).numpy(), described_weight(codes))
    specs = {(spec.name, spec.dtype, spec.shape) for spec in linear_specs("x", 32, 64, bits, group_size)}
    stored = linear_tensors("x", codes).items()
    assert {(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in stored} == specs


@pytest.mark.parametrize("bits", WIDTHS)
def test_groups_that_are_not_consecutive_are_told_by_g_idx(bits: int) -> None:
    index = torch.randperm(64, generator=torch.Generator().manual_seed(1)).to(torch.int32) // 32
    codes = replace(any_codes(bits), group_index=index)
    assert np.array_equal(dequantize(codes).numpy(), described_weight(codes))
    read = reloaded(codes).group_index
    assert read is not None and torch.equal(read, index)


@pytest.mark.parametrize("bits", WIDTHS)
def test_every_zero_point_comes_back_as_it_was(bits: int) -> None:
    zero_points = torch.arange(2**bits, dtype=torch.int32).clamp(min=1).to(torch.uint8)
    outputs = max(32, len(zero_points))
    zero_points = zero_points.repeat(outputs // len(zero_points)).unsqueeze(1)
    codes = replace(any_codes(bits, outputs=outputs, inputs=32), zero_points=zero_points)
    assert torch.equal(reloaded(codes).zero_points, zero_points)
    assert torch.equal(dequantize(reloaded(codes)), dequantize(codes))


def test_a_symmetric_zero_point_of_8_is_stored_as_7() -> None:
    codes = replace(any_codes(4), zero_points=torch.full((32, 2), 8, dtype=torch.uint8))
    assert linear_tensors("x", codes)["x.qzeros"].tolist() == [[0x77777777] * 4] * 2


def test_a_zero_point_of_0_is_refused_because_readers_disagree_on_what_it_wraps_to() -> None:
    codes = any_codes(4)
    codes.zero_points[3, 1] = 0
    with pytest.raises(ValueError, match="zero point is 0"):
        linear_tensors("x", codes)


def test_what_does_not_fit_its_bits_or_whole_words_is_refused() -> None:
    with pytest.raises(ValueError, match="8 does not fit 3 bits"):
        pack(torch.full((32, 1), 8, dtype=torch.uint8), 3)
    with pytest.raises(ValueError, match="24 rows of 3 bits are not a multiple of 32"):
        pack(torch.zeros(24, 1, dtype=torch.uint8), 3)


@pytest.mark.parametrize(
    ("outputs", "inputs", "bits", "fits"),
    [(48, 64, 2, True), (48, 64, 3, False), (64, 96, 3, True), (20, 64, 4, False), (20, 64, 8, True)],
)
def test_sizes_that_cannot_be_packed_are_known_before(
    outputs: int, inputs: int, bits: int, fits: bool
) -> None:
    assert (obstacle(outputs, inputs, bits) == "") is fits


def scheme(**changes: object) -> Scheme:
    return Scheme.model_validate(
        {"method": "gptq", "bits": 4, "group_size": 128, "symmetric": True} | changes
    )


def test_config_says_version_1_and_what_loaders_ask_for() -> None:
    assert quantization_config(scheme(), {}, OUTSIDE) == {
        "quant_method": "gptq",
        "checkpoint_format": "gptq",
        "bits": 4,
        "group_size": 128,
        "desc_act": False,
        "sym": True,
        "lm_head": False,
        "pack_dtype": "int32",
    }


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"desc_act": True}, True),
        ({"desc_act": True, "static_groups": True}, False),
        ({"desc_act": True, "group_size": -1}, False),
    ],
)
def test_desc_act_is_told_to_loaders_only_where_groups_are_not_consecutive(
    changes: dict[str, object], told: bool
) -> None:
    assert quantization_config(scheme(**changes), {}, OUTSIDE)["desc_act"] is told


def test_kept_units_are_excluded_by_their_linears_and_by_what_runtimes_fuse_them_into() -> None:
    attention, mlp = "model.layers.1.self_attn", "model.layers.1.mlp"
    kept = {
        "model.layers.1.qkv": tuple(f"{attention}.{name}_proj" for name in "qkv"),
        "model.layers.1.down": (f"{mlp}.down_proj",),
    }
    dynamic = quantization_config(scheme(), kept, (*OUTSIDE, "model.project_in"))["dynamic"]
    assert set(dynamic) == {
        r"-:^model\.layers\.1\.self_attn\.(q_proj|k_proj|v_proj|qkv_proj)$",
        r"-:^model\.layers\.1\.mlp\.(down_proj)$",
        r"-:^model\.project_in$",
    }
    assert all(value == {} for value in dynamic.values())
    patterns = [re.compile(key.removeprefix("-:")) for key in dynamic]
    excluded = ("self_attn.q_proj", "self_attn.qkv_proj", "mlp.down_proj")
    others = ("self_attn.o_proj", "mlp.up_proj", "mlp.gate_up_proj")
    for name in excluded:
        assert any(pattern.match(f"model.layers.1.{name}") for pattern in patterns)
        assert not any(pattern.match(f"model.layers.11.{name}") for pattern in patterns)
    for name in others:
        assert not any(pattern.match(f"model.layers.1.{name}") for pattern in patterns)
