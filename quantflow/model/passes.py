"""A pass over the blocks that can be interrupted: the hidden states between two blocks, kept on disk."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from quantflow.errors import StoreError
from quantflow.model.safetensors_file import SafetensorsFile, TensorSpec, write_safetensors

# Part of the time that may go into keeping progress; a pass whose states are large keeps them less often.
MAX_OVERHEAD = 0.05


class PassProgress:
    """How far a pass over the blocks has come.

    Only the newest states are kept, under a name that says after which block; they appear by rename, whole or
    not at all.

    Args:
        folder: Where to keep them; made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._kept_at = time.monotonic()
        self._cost = 0.0

    def find(self, shapes: Sequence[torch.Size]) -> tuple[int, SafetensorsFile] | None:
        """The number of blocks passed and the states after them, None where there is nothing (usable).

        Args:
            shapes: Shape of every batch's hidden states; states of other shapes are of another pass.
        """
        for path in sorted(self._folder.glob("blocks-*.safetensors"), reverse=True):
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
        """Keep the states after so many blocks, unless that would cost more than `MAX_OVERHEAD` of the time.

        Args:
            blocks: Blocks passed.
            states: Hidden states of every batch, `[B, T, d]` each.
        """
        now = time.monotonic()
        if self._cost > MAX_OVERHEAD * (now - self._kept_at):
            return
        specs = [_spec(number, state.dtype, state.shape) for number, state in enumerate(states)]
        named = ((_name(number), state.cpu()) for number, state in enumerate(states))
        path = self._path(blocks)
        write_safetensors(path, specs, named, {})
        self._forget_all_but(path)
        self._kept_at = time.monotonic()
        self._cost = self._kept_at - now

    def write(self, shapes: Sequence[torch.Size], dtype: torch.dtype, states: Iterable[Tensor]) -> None:
        """Write states as they come, holding one of them; they are progress once `accept` says so.

        Args:
            shapes: Shape of each.
            dtype: Dtype of all.
            states: Hidden states of every batch, `[B, T, d]` each, made as they are asked for.
        """
        specs = [_spec(number, dtype, shape) for number, shape in enumerate(shapes)]
        named = ((_name(number), state.cpu()) for number, state in enumerate(states))
        write_safetensors(self._pending, specs, named, {})

    def accept(self, blocks: int) -> SafetensorsFile:
        """Make what was written last the states after so many blocks."""
        path = self._path(blocks)
        self._pending.replace(path)
        self._forget_all_but(path)
        return SafetensorsFile(path, StoreError)

    @property
    def _pending(self) -> Path:
        return self._folder / "pending.safetensors"

    def _path(self, blocks: int) -> Path:
        return self._folder / f"blocks-{blocks:05d}.safetensors"

    def _forget_all_but(self, newest: Path) -> None:
        for older in self._folder.glob("blocks-*.safetensors"):
            if older != newest:
                older.unlink()


def state_of(file: SafetensorsFile, number: int) -> Tensor:
    """The hidden states of a batch in a file of states, `[B, T, d]`."""
    return file.read(_name(number))


def _name(number: int) -> str:
    return f"{number:06d}"


def _spec(number: int, dtype: torch.dtype, shape: torch.Size) -> TensorSpec:
    return TensorSpec(_name(number), dtype, tuple(shape))
