"""Hidden states at scored positions on disk: 1/30 of the logits and, through the head, all of them again."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantflow.errors import StoreError
from quantflow.measure.batches import Batch
from quantflow.measure.scoring import Rows, scored_hidden
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.passes import PassProgress
from quantflow.model.safetensors_file import SafetensorsFile, TensorSpec, write_safetensors
from quantflow.pipeline.events import Reporter

HIDDEN_FILE = "hidden.safetensors"
_TENSOR = "hidden"


def save_hidden(folder: Path, hidden: Tensor) -> None:
    """Write hidden states, float32 [positions, d], complete or not at all."""
    spec = TensorSpec(_TENSOR, hidden.dtype, tuple(hidden.shape))
    write_safetensors(folder / HIDDEN_FILE, [spec], [(_TENSOR, hidden)], {})


def stored_hidden(folder: Path, shape: tuple[int, int]) -> Rows:
    """Hidden states that are read piece by piece, so that they need not fit in memory.

    Args:
        folder: Where `save_hidden` put them, such as the finished output of the baseline stage.
        shape: Scored positions and hidden size that they must have.

    Raises:
        StoreError: They are not there or of another shape.
    """
    file = SafetensorsFile(folder / HIDDEN_FILE, StoreError)
    found = file.specs[_TENSOR].shape if _TENSOR in file.specs else ()
    if found != shape:
        raise StoreError(
            f"the hidden states have the shape {found}, not {shape}",
            where=str(file.path),
            hint="The store is damaged: run again with --verify.",
        )
    return partial(file.read_rows, _TENSOR)


def rows_at(rows: Rows, at: NDArray[np.int64]) -> Rows:
    """The rows at some places, in their order; those that lie together are read together.

    Args:
        rows: Gives rows from … to.
        at: The places, [rows].
    """

    def some(begin: int, end: int) -> Tensor:
        wanted = at[begin:end]
        runs = np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1)
        return torch.cat([rows(int(run[0]), int(run[-1]) + 1) for run in runs])

    return some


def hidden_to_disk(
    decoder: StreamedDecoder,
    batches: Sequence[Batch],
    folder: Path,
    reporter: Reporter,
    what: str,
) -> Rows:
    """Run a model over all evaluation windows, unless an interrupted run did; its scored states.

    Args:
        decoder: The model.
        batches: All evaluation windows.
        folder: Where they are put: the output, if they are a part of it, where a disk that does not take
            them is an error; or the reporter's progress folder, without which they stay in memory.
        reporter: Is told of progress, and keeps it.
        what: What progress is shown as.
    """
    shape = (sum(batch.positions for batch in batches), decoder.hidden_size)
    path = folder / HIDDEN_FILE
    if not path.exists():  # it appears when it is whole
        hidden = scored_hidden(decoder, batches, reporter, what)
        save = partial(save_hidden, folder, hidden)
        if folder != reporter.progress_folder:
            save()
        elif not reporter.keep(save):
            return lambda begin, end: hidden[begin:end]
        PassProgress(reporter).drop()
    return stored_hidden(folder, shape)
