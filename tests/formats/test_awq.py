"""AutoAWQ's gemm layout, against a second implementation from the format's description alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quantflow.formats.awq import linear_codes, linear_specs, linear_tensors, pack, unpack
from quantflow.quantize.codes import dequantize
from tests.formats.assembling import rounded


def described_packing(values: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Eight columns to an int32, four bits each; from the lowest nibble up columns 0, 2, 4, 6, 1, 3, 5, 7."""
    rows, columns = values.shape
    packed = np.zeros((rows, columns // 8), dtype=np.int32)
    for row in range(rows):
        for word in range(columns // 8):
            digits = ""
            for column in (7, 5, 3, 1, 6, 4, 2, 0):
                digits += f"{int(values[row, 8 * word + column]):x}"
            number = int(digits, 16)
            packed[row, word] = number - (1 << 32) if number >= 1 << 31 else number
    return packed


def described_weight(
    qweight: NDArray[np.int32], qzeros: NDArray[np.int32], scales: NDArray[np.float16], group_size: int
) -> NDArray[np.float64]:
    """W[o, i] = (q - z) * s from the packed words, one nibble at a time."""
    place_of_column = {0: 0, 2: 1, 4: 2, 6: 3, 1: 4, 3: 5, 5: 6, 7: 7}
    inputs, outputs = qweight.shape[0], scales.shape[1]
    weight = np.zeros((outputs, inputs))
    for i in range(inputs):
        for o in range(outputs):
            shift = 4 * place_of_column[o % 8]
            q = (int(qweight[i, o // 8]) & 0xFFFFFFFF) >> shift & 0xF
            z = (int(qzeros[i // group_size, o // 8]) & 0xFFFFFFFF) >> shift & 0xF
            weight[o, i] = (q - z) * float(scales[i // group_size, o])
    return weight


@st.composite
def code_matrices(draw: st.DrawFn) -> NDArray[np.uint8]:
    rows, words = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    values = draw(st.binary(min_size=rows * words * 8, max_size=rows * words * 8))
    return np.frombuffer(values, dtype=np.uint8).reshape(rows, words * 8) % np.uint8(16)


@given(code_matrices())
def test_packing_is_that_of_the_description_bit_for_bit(values: NDArray[np.uint8]) -> None:
    packed = pack(torch.from_numpy(values))
    assert packed.dtype == torch.int32
    assert np.array_equal(packed.numpy(), described_packing(values))


@given(code_matrices())
def test_unpacking_undoes_packing(values: NDArray[np.uint8]) -> None:
    assert np.array_equal(unpack(torch.from_numpy(described_packing(values))).numpy(), values)


def test_a_word_worked_by_hand() -> None:
    assert pack(torch.arange(8, dtype=torch.uint8).unsqueeze(0)).tolist() == [[0x75316420]]
    assert pack(torch.full((1, 8), 15, dtype=torch.uint8)).tolist() == [[-1]]


def test_what_does_not_fit_four_bits_or_whole_words_is_refused() -> None:
    with pytest.raises(ValueError, match="16 does not fit"):
        pack(torch.tensor([[16, 0, 0, 0, 0, 0, 0, 0]], dtype=torch.uint8))
    with pytest.raises(ValueError, match="12 columns"):
        pack(torch.zeros(1, 12, dtype=torch.uint8))


def test_a_linear_is_stored_with_inputs_along_the_rows_and_means_what_its_codes_mean() -> None:
    codes = rounded(torch.randn(24, 64, generator=torch.Generator().manual_seed(0)), 16)
    tensors = linear_tensors("layer", codes)
    shapes = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    assert shapes == {
        "layer.qweight": (torch.int32, (64, 3)),
        "layer.qzeros": (torch.int32, (4, 3)),
        "layer.scales": (torch.float16, (4, 24)),
    }
    assert {spec.name: (spec.dtype, spec.shape) for spec in linear_specs("layer", 24, 64, 4, 16)} == shapes
    qweight, qzeros, scales = (tensors[f"layer.{part}"] for part in ("qweight", "qzeros", "scales"))
    described = described_weight(qweight.numpy(), qzeros.numpy(), scales.numpy(), 16)
    assert np.array_equal(dequantize(codes).numpy(), described.astype(np.float32))
    parts = {name.removeprefix("layer"): tensor for name, tensor in tensors.items()}
    assert torch.equal(dequantize(linear_codes(parts, 4, 16)), dequantize(codes))


def test_groups_that_are_not_consecutive_have_no_place_in_the_layout() -> None:
    codes = rounded(torch.randn(8, 64), 32)
    with pytest.raises(ValueError, match="not consecutive"):
        linear_tensors("layer", replace(codes, group_index=torch.arange(64, dtype=torch.int32) % 2))
