"""Reads the artifacts of other tools back: every weight in float32 by the name the lossless model has for it.

Three layouts, four bits each, told apart by `quant_method` of config.json's `quantization_config`:

- `compressed-tensors` (pack-quantized): eight codes to an int32 along the inputs, lowest bits first, each 8
  more than its signed value; zero points the same way along the outputs.
- `gptq`: AutoGPTQ's, codes along the inputs, zero points along the outputs and stored minus one in version 1.
- `awq`: AutoAWQ's `gemm`, read by QuantFlow's own reader of it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quantflow.errors import ArtifactError
from quantflow.formats.awq import QWEIGHT, QZEROS, SCALES, linear_codes
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.codes import dequantize

BITS = 4
PER_WORD = 32 // BITS
MIDDLE = 1 << (BITS - 1)
"""The code of zero in a symmetric grid."""

Parts = Callable[[str], Tensor | None]
"""Gives a linear's stored tensor by the last part of its name, or None where there is none."""


class PeerReader:
    """The weights of another tool's artifact; a `WeightReader`.

    Args:
        folder: The artifact.

    Raises:
        ArtifactError: It is in none of the three layouts.
    """

    def __init__(self, folder: Path) -> None:
        """Find out which linears are quantized, and how they are stored."""
        settings = json.loads((folder / "config.json").read_text())["quantization_config"]
        method = settings["quant_method"]
        layouts = {"compressed-tensors": ("weight_packed", _packed), "gptq": ("qweight", _gptq)}
        layouts["awq"] = ("qweight", _awq)
        if method not in layouts:
            raise ArtifactError(f"quant_method {method!r} is not read here", where=str(folder))
        stored_as, self._dequantize = layouts[method]
        self._settings: Mapping[str, Any] = settings
        self._reader = SafetensorsReader(folder, ArtifactError)
        stored = self._reader.names()
        suffix = f".{stored_as}"
        self.quantized = frozenset(name.removesuffix(suffix) for name in stored if name.endswith(suffix))
        plain = {name for name in stored if name.rpartition(".")[0] not in self.quantized}
        biases = {f"{linear}.bias" for linear in self.quantized} & stored
        self._names = frozenset(plain | biases | {f"{linear}.weight" for linear in self.quantized})

    def names(self) -> frozenset[str]:
        """Names of all tensors, quantized weights under the name of what they stand for."""
        return self._names

    def read(self, name: str) -> Tensor:
        """One tensor: a quantized weight as float32 `[out, in]`, all else as stored.

        Raises:
            ArtifactError: There is no such tensor, or it is not finite.
        """
        linear, _, last = name.rpartition(".")
        if last != "weight" or linear not in self.quantized:
            return self._reader.read(name)
        weight = self._dequantize(lambda part: self._part(linear, part), self._settings)
        if not bool(torch.isfinite(weight).all()):
            raise ArtifactError("holds NaN or infinite values", where=name)
        return weight

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that is stored as it is."""
        return self._reader.shape(name)

    def rows(self, name: str, rows: Sequence[int]) -> Tensor:
        """Some rows of a tensor that is stored as it is."""
        return self._reader.rows(name, rows)

    def _part(self, linear: str, part: str) -> Tensor | None:
        name = f"{linear}.{part}"
        return self._reader.read(name) if name in self._reader.names() else None


def _packed(part: Parts, settings: Mapping[str, Any]) -> Tensor:
    words, scales, shape = _there(part, "weight_packed"), _there(part, "weight_scale"), part("weight_shape")
    codes = _unpack(words) - MIDDLE
    if shape is not None and tuple(codes.shape) != tuple(shape.tolist()):
        raise ArtifactError(f"{list(codes.shape)} codes for a weight of shape {shape.tolist()}")
    zeros = part("weight_zero_point")
    if zeros is None:
        points = torch.zeros_like(scales)
    else:
        points = (_unpack(zeros.T.contiguous()).T - MIDDLE)[: codes.shape[0]].float()
    groups = part("weight_g_idx")
    return _spread(codes, scales, points, groups)


def _gptq(part: Parts, settings: Mapping[str, Any]) -> Tensor:
    codes = _unpack(_there(part, "qweight").T.contiguous())
    # Version 1 keeps the zero points minus one, in four bits: what wraps around there wraps back here.
    missing = 0 if settings.get("checkpoint_format") == "gptq_v2" else 1
    points = (_unpack(_there(part, "qzeros")).T + missing) % (1 << BITS)
    return _spread(codes, _there(part, "scales").T, points.float(), part("g_idx"))


def _awq(part: Parts, settings: Mapping[str, Any]) -> Tensor:
    parts = {
        QWEIGHT: _there(part, "qweight"),
        QZEROS: _there(part, "qzeros"),
        SCALES: _there(part, "scales").half(),
    }
    return dequantize(linear_codes(parts, BITS, int(settings["group_size"])))


def _spread(codes: Tensor, scales: Tensor, points: Tensor, groups: Tensor | None) -> Tensor:
    """(code − zero point) · scale, `[out, in]`, from scales and points `[out, groups]`."""
    if groups is None:
        groups = torch.arange(codes.shape[1]) // (codes.shape[1] // scales.shape[1])
    at = groups.long()
    return (codes.float() - points[:, at]) * scales.float()[:, at]


def _unpack(words: Tensor) -> Tensor:
    """int32 `[rows, n]` → codes from 0 to 15, int32 `[rows, 8n]`, lowest bits first."""
    shifts = torch.arange(0, 32, BITS, dtype=torch.int32)
    return ((words.unsqueeze(-1) >> shifts) & ((1 << BITS) - 1)).reshape(words.shape[0], -1)


def _there(part: Parts, name: str) -> Tensor:
    found = part(name)
    if found is None:
        raise ArtifactError(f"a quantized linear has no {name}")
    return found
