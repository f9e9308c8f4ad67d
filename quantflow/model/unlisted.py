"""The family of an architecture that is not listed, made out of the model itself.

Its blocks are the one list of modules that are all alike, as many as the config says, and their linears are
its units. Which norm's output a linear reads cannot be seen from outside, so that there are no folds.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from quantflow.model.families import Family
from quantflow.model.supported import refusal

FUSED_BY_RUNTIMES = {"qkv": ("q_proj", "k_proj", "v_proj"), "gate_up": ("gate_proj", "up_proj")}
"""Linears of one module that runtimes make one of, and that therefore have one precision: unit → names."""

_EXPERTS = re.compile(r"Expert|MoE|Moe|Router")


def inspect_blocks(model: Any, config: Any) -> Family:
    """Find blocks and units of a causal language model.

    Args:
        model: As transformers builds it, with or without weights.
        config: Its config.

    Raises:
        RecipeError: It is no decoder of uniform dense blocks: it has experts, blocks that differ, no
            attention, or weights that are no `nn.Linear`.
    """
    kind = str(config.model_type)
    path, blocks = _find_blocks(model, kind, int(getattr(config, "num_hidden_layers", 0)))
    first = blocks[0]
    for name, module in first.named_modules():
        if _EXPERTS.search(type(module).__name__):
            raise refusal(kind, f"it is a mixture of experts ({name or path} is a {type(module).__name__})")
    _require_alike(kind, path, blocks)
    linears = {name for name, module in first.named_modules() if isinstance(module, nn.Linear)}
    for name, parameter in first.named_parameters():
        owner, _, leaf = name.rpartition(".")
        if parameter.ndim > 1 and not (owner in linears and leaf == "weight"):
            what = type(first.get_submodule(owner)).__name__
            raise refusal(kind, f"{path}.0.{name} belongs to a {what} and not to an nn.Linear")
    if not any("attention" in type(module).__name__.lower() for module in first.modules()):
        raise refusal(kind, "its blocks have no attention")
    inside = f"{path}."
    return Family(
        model_type=kind,
        blocks=path,
        units=_units([name for name, _ in first.named_modules() if name in linears]),
        folds=(),
        outside=tuple(
            name
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear) and not name.startswith(inside)
        ),
        listed=False,
    )


def _find_blocks(model: Any, kind: str, count: int) -> tuple[str, Sequence[nn.Module]]:
    found = [
        (name, module)
        for name, module in _outermost_lists(model, "")
        if len(module) == count and any(isinstance(part, nn.Linear) for part in module[0].modules())
    ]
    if len(found) != 1:
        names = ", ".join(name for name, _ in found) or "none"
        raise refusal(kind, f"it has no single list of {count} blocks (found: {names})")
    path, blocks = found[0]
    return path, list(blocks)


def _outermost_lists(module: nn.Module, name: str) -> Iterator[tuple[str, nn.ModuleList]]:
    if isinstance(module, nn.ModuleList):
        if len(module):
            yield name, module
        return
    for child, part in module.named_children():
        yield from _outermost_lists(part, f"{name}.{child}" if name else child)


def _require_alike(kind: str, path: str, blocks: Sequence[nn.Module]) -> None:
    first = {name for name, _ in blocks[0].named_parameters()}
    for index, block in enumerate(blocks):
        other = {name for name, _ in block.named_parameters()}
        if type(block) is not type(blocks[0]) or other != first:
            odd = ", ".join(sorted(first ^ other)[:2]) or type(block).__name__
            raise refusal(kind, f"its blocks are not alike: {path}.0 and {path}.{index} differ in {odd}")


def _units(linears: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Unit → linears, in the order in which the block has them."""
    units: dict[str, tuple[str, ...]] = {}
    placed: set[str] = set()
    for linear in linears:
        if linear in placed:
            continue
        parent, _, leaf = linear.rpartition(".")
        unit = linear
        members: tuple[str, ...] = (linear,)
        for fused, names in FUSED_BY_RUNTIMES.items():
            full = tuple(f"{parent}.{name}" if parent else name for name in names)
            if leaf in names and set(full) <= set(linears):
                unit, members = f"{parent}.{fused}" if parent else fused, full
        units[unit] = members
        placed.update(members)
    return units
