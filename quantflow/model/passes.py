"""A pass over the blocks that can be interrupted: the hidden states between two blocks, kept on disk."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from quantflow.errors import StoreError
from quantflow.model.safetensors_file import SafetensorsFile, TensorSpec, write_safetensors
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.pace import Pace

_STATES = "blocks-*.safetensors"
_PENDING = "pending.safetensors"


class PassProgress:
    """How far a pass over the blocks has come.

    Only the newest states are kept, under a name that says after which block; they appear by rename, whole or
    not at all.

    Args:
        reporter: Of the stage that passes; its progress folder holds the states.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._folder = reporter.progress_folder
        self._folder.mkdir(parents=True, exist_ok=True)
        # Of a run killed while it wrote, or before what it had written was accepted.
        for cut in (*self._folder.glob(f"{_STATES}.partial"), *self._folder.glob(f"{_PENDING}*")):
            cut.unlink()
        self._pace = Pace()

    def find(self, shapes: Sequence[torch.Size]) -> tuple[int, SafetensorsFile] | None:
        """The number of blocks passed and the states after them, None where there is nothing (usable).

        Args:
            shapes: Shape of every batch's hidden states; states of other shapes are of another pass.
        """
        for path in sorted(self._folder.glob(_STATES), reverse=True):
            try:
                file = SafetensorsFile(path, StoreError)
            except StoreError:
                continue
            names = [_name(number) for number in range(len(shapes))]
            found = [torch.Size(file.specs[name].shape) for name in names if name in file.specs]
            if len(file.specs) == len(names) and found == list(shapes):
                return int(path.stem.partition("-")[2]), file
        return None

    def load(self, shapes: Sequence[torch.Size]) -> tuple[int, list[Tensor]] | None:
        """What `find` finds, read."""
        found = self.find(shapes)
        if found is None:
            return None
        try:
            return found[0], [state_of(found[1], number) for number in range(len(shapes))]
        except StoreError:
            return None

    def keep(self, blocks: int, states: Sequence[Tensor]) -> None:
        """Keep the states after so many blocks, unless that would cost too much of the time.

        Where the disk does not take them, those before stay.

        Args:
            blocks: Blocks passed.
            states: Hidden states of every batch, `[B, T, d]` each.
        """
        if not self._pace.due:
            return
        with self._pace.keeping():
            specs = [_spec(number, state.dtype, state.shape) for number, state in enumerate(states)]
            named = ((_name(number), state.cpu()) for number, state in enumerate(states))
            path = self._path(blocks)
            if self._reporter.keep(partial(write_safetensors, path, specs, named, {})):
                self._drop_all_but(path.name)

    def write(self, shapes: Sequence[torch.Size], dtype: torch.dtype, states: Iterable[Tensor]) -> None:
        """Write states as they come, holding one of them; they are progress once `accept` says so.

        Unlike what is kept in case of an interruption, the pass does not go on without them.

        Args:
            shapes: Shape of each.
            dtype: Dtype of all.
            states: Hidden states of every batch, `[B, T, d]` each, made as they are asked for.
        """
        specs = [_spec(number, dtype, shape) for number, shape in enumerate(shapes)]
        named = ((_name(number), state.cpu()) for number, state in enumerate(states))
        write_safetensors(self._folder / _PENDING, specs, named, {})

    def accept(self, blocks: int) -> SafetensorsFile:
        """Make what was written last the states after so many blocks."""
        path = self._path(blocks)
        (self._folder / _PENDING).replace(path)
        self._drop_all_but(path.name)
        return SafetensorsFile(path, StoreError)

    def drop(self) -> None:
        """Give the disk back what the pass kept: what it led to is kept itself."""
        self._drop_all_but("")

    def _drop_all_but(self, name: str) -> None:
        for path in self._folder.glob(_STATES):
            if path.name != name:
                path.unlink()

    def _path(self, blocks: int) -> Path:
        return self._folder / f"blocks-{blocks:05d}.safetensors"


def state_of(file: SafetensorsFile, number: int) -> Tensor:
    """The hidden states of a batch in a file of states, `[B, T, d]`."""
    return file.read(_name(number))


def _name(number: int) -> str:
    return f"{number:06d}"


def _spec(number: int, dtype: torch.dtype, shape: torch.Size) -> TensorSpec:
    return TensorSpec(_name(number), dtype, tuple(shape))
