"""How a model calls its blocks, kept to call them again with other hidden states."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

CACHE_ARGUMENTS = frozenset({"past_key_values", "use_cache", "cache_position"})
"""Of no use to a block that sees each window once and whole."""


@dataclass(frozen=True)
class BlockCall:
    """How the model calls one of its blocks, the hidden states aside.

    Attributes:
        args: Positional arguments after the hidden states.
        kwargs: Keyword arguments: mask, positions, rotary embeddings.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def run(self, block: nn.Module, hidden: Tensor) -> Tensor:
        """Run a loaded block on hidden states `[B, T, d]` as the model would; `[B, T, d]`."""
        output = block(hidden, *self.args, **self.kwargs)
        result: Tensor = output[0] if isinstance(output, tuple) else output
        return result
