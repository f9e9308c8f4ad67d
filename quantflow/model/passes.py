"""A pass over the blocks that can be interrupted: the hidden states between two blocks, kept on disk."""

import time
from collections.abc import Sequence
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

    def load(self, shapes: Sequence[torch.Size]) -> tuple[int, list[Tensor]] | None:
        """The number of blocks passed and the states after them, None where there is nothing (usable).

        Args:
            shapes: Shape of every batch's hidden states; states of other shapes are of another pass.
        """
        for path in sorted(self._folder.glob("blocks-*.safetensors"), reverse=True):
            try:
                file = SafetensorsFile(path, StoreError)
                states = [file.read(f"{number:06d}") for number in range(len(file.specs))]
            except StoreError:
                continue
            if [state.shape for state in states] == list(shapes):
                return int(path.stem.partition("-")[2]), states
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
        path = self._folder / f"blocks-{blocks:05d}.safetensors"
        named = {f"{number:06d}": state.cpu() for number, state in enumerate(states)}
        specs = [TensorSpec(name, state.dtype, tuple(state.shape)) for name, state in named.items()]
        write_safetensors(path, specs, named.items(), {})
        for older in self._folder.glob("blocks-*.safetensors"):
            if older != path:
                older.unlink()
        self._kept_at = time.monotonic()
        self._cost = self._kept_at - now
