"""A pass over the blocks that can be interrupted: the hidden states between two blocks, kept on disk."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from quantflow.errors import StoreError
from quantflow.model.safetensors_file import SafetensorsFile, TensorSpec, write_safetensors
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.pace import Pace

_STATES = "blocks-*.safetensors"


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
        for cut in self._folder.glob(f"{_STATES}.partial"):  # of a run killed while it wrote
            cut.unlink()
        self._pace = Pace()

    def load(self, shapes: Sequence[torch.Size]) -> tuple[int, list[Tensor]] | None:
        """The number of blocks passed and the states after them, None where there is nothing (usable).

        Args:
            shapes: Shape of every batch's hidden states; states of other shapes are of another pass.
        """
        for path in sorted(self._folder.glob(_STATES), reverse=True):
            try:
                file = SafetensorsFile(path, StoreError)
                states = [file.read(f"{number:06d}") for number in range(len(file.specs))]
            except StoreError:
                continue
            if [state.shape for state in states] == list(shapes):
                return int(path.stem.partition("-")[2]), states
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
        path = self._folder / f"blocks-{blocks:05d}.safetensors"
        with self._pace.keeping():
            named = {f"{number:06d}": state.cpu() for number, state in enumerate(states)}
            specs = [TensorSpec(name, state.dtype, tuple(state.shape)) for name, state in named.items()]
            if self._reporter.keep(partial(write_safetensors, path, specs, named.items(), {})):
                self._drop_all_but(path.name)

    def drop(self) -> None:
        """Give the disk back what the pass kept: what it led to is kept itself."""
        self._drop_all_but("")

    def _drop_all_but(self, name: str) -> None:
        for path in self._folder.glob(_STATES):
            if path.name != name:
                path.unlink()
