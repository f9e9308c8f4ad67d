"""The baseline's hidden states on disk: 1/30 of its logits and, through its head, all of them again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from quantflow.errors import StoreError
from quantflow.measure.scoring import Rows

HIDDEN_FILE = "hidden.safetensors"
_TENSOR = "hidden"


def save_hidden(output: Path, hidden: Tensor) -> None:
    """Write hidden states, float32 [positions, d]."""
    save_file({_TENSOR: hidden}, output / HIDDEN_FILE)


@contextmanager
def stored_hidden(baseline_output: Path, shape: tuple[int, int]) -> Iterator[Rows]:
    """Read hidden states piece by piece, so that they need not fit in memory.

    Args:
        baseline_output: Finished output of the baseline stage.
        shape: Scored positions and hidden size that they must have.

    Raises:
        StoreError: They are of another shape.
    """
    path = baseline_output / HIDDEN_FILE
    with safe_open(path, framework="pt") as file:
        rows = file.get_slice(_TENSOR)
        if tuple(rows.get_shape()) != shape:
            raise StoreError(
                f"the baseline's hidden states have the shape {tuple(rows.get_shape())}, not {shape}",
                where=str(path),
                hint="The store is damaged: run again with --verify.",
            )
        yield lambda begin, end: rows[begin:end]
