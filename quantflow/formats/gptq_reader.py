"""Opens a GPTQ artifact: what its config.json has to say, and what its tensors have to hold."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from quantflow.errors import ArtifactError
from quantflow.formats.codes_reader import DAMAGED, CodesReader, unreadable
from quantflow.formats.gptq import GROUP_INDEX, QWEIGHT, QZEROS, VERSION
from quantflow.formats.layouts import LAYOUTS
from quantflow.model.safetensors_file import TensorSpec
from quantflow.quantize.codes import LinearCodes
from quantflow.quantize.params import Bits

EXCLUDES = "-:"
"""Beginning of a key of `dynamic` whose modules are not quantized."""


@dataclass(frozen=True)
class _Settings:
    """What `quantization_config` says; `group_size` is -1 for all inputs of a layer."""

    bits: int
    group_size: int
    symmetric: bool
    mixes_groups: bool
    excluded: tuple[re.Pattern[str], ...]


def open_gptq(folder: Path, settings: dict[str, Any]) -> CodesReader:
    """A reader of an artifact in version 1 of AutoGPTQ's layout.

    Args:
        folder: The artifact.
        settings: `quantization_config` of its config.json.

    Raises:
        ArtifactError: If the settings are not those of the layout, or a tensor is missing, has a shape or
            dtype that does not fit the others, or cannot be read.
    """
    told = _settings(settings, str(folder / "config.json"))

    def sizes(parts: Mapping[str, TensorSpec]) -> tuple[int, int, int]:
        index, qweight = parts[GROUP_INDEX], parts[QWEIGHT]
        if len(index.shape) != 1:
            raise unreadable(folder, index, "and has to have one dimension")
        (inputs,) = index.shape
        if len(qweight.shape) != 2:
            raise unreadable(folder, qweight, "and has to have two dimensions")
        group_size = inputs if told.group_size == -1 else told.group_size
        if inputs % group_size:
            raise unreadable(folder, index, f"which groups of {group_size} inputs do not divide")
        return qweight.shape[1], inputs, group_size

    def excluded(linear: str) -> str:
        return f"`dynamic` leaves it out ({EXCLUDES})" if any(p.match(linear) for p in told.excluded) else ""

    def verify(linear: str, codes: LinearCodes) -> None:
        _verify(folder, linear, codes, told)

    return CodesReader(folder, LAYOUTS["gptq"], told.bits, sizes, excluded, verify)


def _verify(folder: Path, linear: str, codes: LinearCodes, told: _Settings) -> None:
    if int(codes.zero_points.min()) < 1 or int(codes.zero_points.max()) >= 1 << codes.bits:
        raise ArtifactError(
            "holds a zero point that wraps around, which runtimes read differently",
            where=f"{folder}: {linear}{QZEROS}",
            hint="Version 1 of the layout stores zero points minus one: from 1 on.",
        )
    if told.symmetric and bool((codes.zero_points != 1 << (codes.bits - 1)).any()):
        raise ArtifactError(
            "holds other zero points than the middle one although quantization_config says sym",
            where=f"{folder}: {linear}{QZEROS}",
            hint="Runtimes that believe it do not look at them.",
        )
    index = codes.group_index
    if index is None:
        return
    where = f"{folder}: {linear}{GROUP_INDEX}"
    if not told.mixes_groups:
        raise ArtifactError(
            "has groups that are not consecutive inputs although quantization_config does not say desc_act",
            where=where,
            hint="Runtimes that believe it do not look at them.",
        )
    groups = codes.scales.shape[1]
    in_range = bool(((index >= 0) & (index < groups)).all())
    if not in_range or bool((torch.bincount(index, minlength=groups) != codes.group_size).any()):
        raise ArtifactError(
            f"does not share {len(index)} inputs out to {groups} groups of {codes.group_size}",
            where=where,
            hint=DAMAGED,
        )


def _settings(settings: dict[str, Any], where: str) -> _Settings:
    version, bits, group_size = (settings.get(key) for key in ("checkpoint_format", "bits", "group_size"))
    if version != VERSION:
        raise ArtifactError(
            f"quantization_config has checkpoint_format {version!r}; QuantFlow reads {VERSION!r}, version 1",
            where=where,
            hint="Version 2 (gptq_v2) has zero points that version 1 is off by one from: the two must not be "
            "mixed up.",
        )
    if type(bits) is not int or bits not in get_args(Bits):
        allowed = ", ".join(map(str, get_args(Bits)))
        raise ArtifactError(
            f"quantization_config has bits {bits!r}; it has to be one of {allowed}", where=where
        )
    if type(group_size) is not int or not (group_size == -1 or group_size > 0):
        raise ArtifactError(
            f"quantization_config has group_size {group_size!r}; it has to be a positive whole number or -1",
            where=where,
        )
    flags = {key: settings.get(key) for key in ("sym", "desc_act")}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise ArtifactError(
                f"quantization_config has {key} {value!r}; it has to be true or false", where=where
            )
    excluded = _excluded(settings.get("dynamic") or {}, where)
    return _Settings(bits, group_size, bool(flags["sym"]), bool(flags["desc_act"]), excluded)


def _excluded(dynamic: object, where: str) -> tuple[re.Pattern[str], ...]:
    if not isinstance(dynamic, dict):
        raise ArtifactError(
            f"quantization_config has dynamic {dynamic!r}; it has to be an object", where=where
        )
    patterns = []
    for key in dynamic:
        if not key.startswith(EXCLUDES):
            raise ArtifactError(
                f"quantization_config has settings of their own for {key!r} in dynamic; QuantFlow reads "
                f"exclusions ({EXCLUDES}) only",
                where=where,
            )
        try:
            patterns.append(re.compile(key.removeprefix(EXCLUDES)))
        except (re.error, OverflowError, RecursionError) as error:
            raise ArtifactError(
                f"quantization_config has a dynamic key that is no regular expression, {key!r}: {error}",
                where=where,
            ) from error
    return tuple(patterns)
