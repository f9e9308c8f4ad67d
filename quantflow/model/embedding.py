"""An embedding with the rows that a text needs, and no more.

A vocabulary's table in float32 can be larger than all else that a block's work takes: 1.5 GB for a model of 3
billion parameters.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def rows_in_place(table: Any, needed: Tensor, rows: Tensor) -> Iterator[None]:
    """Let an embedding work with some rows of its table.

    Args:
        table: The embedding, of whatever class the model has for it; its weight is put back at the end.
        needed: int64 `[rows]`, the tokens that will be asked for, ascending.
        rows: `[rows, d]`, theirs.
    """
    whole = table.weight
    needed = needed.to(rows.device)

    def renumber(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (torch.searchsorted(needed, args[0]),)

    handle = table.register_forward_pre_hook(renumber)
    try:
        table.register_parameter("weight", nn.Parameter(rows, requires_grad=False))
        yield
    finally:
        table.register_parameter("weight", whole)
        handle.remove()
