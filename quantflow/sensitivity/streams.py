"""Hidden states on their way through the blocks, one stream for each swapped unit, kept on the way."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import Tensor

from quantflow.errors import StoreError
from quantflow.model.safetensors_file import SafetensorsFile, TensorSpec, write_safetensors
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.pace import Pace
from quantflow.sensitivity.measured import Key

_FILES = "streams-*.safetensors"


class StreamStates:
    """The streams of a wave, of different units and so of different beginnings.

    Args:
        reporter: Its progress folder keeps them.
        place: Puts a tensor on the device that computes.

    Attributes:
        passed: Blocks that have been passed by all streams that began before them; 0 where none was kept.
        states: Unit and precision → hidden states of every batch, `[B, T, d]` each.
        no_ops: Of those that have begun, the units whose codes change nothing.
        sizes: Of those that have begun, bytes of the unit's weights in these codes.
    """

    def __init__(self, reporter: Reporter, place: Callable[[Tensor], Tensor]) -> None:
        self._reporter = reporter
        self._folder = reporter.progress_folder
        self._pace = Pace()
        self.passed = 0
        self.states: dict[Key, list[Tensor]] = {}
        self.no_ops: set[Key] = set()
        self.sizes: dict[Key, int] = {}
        for path in sorted(self._folder.glob(_FILES), reverse=True):
            if self._load(path, place):
                break

    def keep(self, passed: int) -> None:
        """Keep all streams as they are after so many blocks, unless that would cost too much of the time."""
        self.passed = passed
        if not self._pace.due:
            return
        with self._pace.keeping():
            named = {
                f"{number:06d}|{'|'.join(key)}": state
                for key, batches in self.states.items()
                for number, state in enumerate(batches)
            }
            specs = [TensorSpec(name, state.dtype, tuple(state.shape)) for name, state in named.items()]
            facts = {
                "no_ops": sorted(self.no_ops),
                "sizes": [[*key, size] for key, size in self.sizes.items()],
            }
            path = self._folder / f"streams-{passed:05d}.safetensors"
            write = partial(write_safetensors, path, specs, named.items(), {"facts": json.dumps(facts)})
            if self._reporter.keep(write):
                self._drop_all_but(path.name)

    def drop(self) -> None:
        """Give the disk back what was kept: the scores that it led to are kept themselves."""
        self._drop_all_but("")

    def _load(self, path: Path, place: Callable[[Tensor], Tensor]) -> bool:
        try:
            file = SafetensorsFile(path, StoreError)
            facts = json.loads(file.metadata["facts"])
            states: dict[Key, list[Tensor]] = {}
            for name in sorted(file.specs):  # by batch
                _, unit, precision = name.split("|")
                states.setdefault((unit, precision), []).append(place(file.read(name)))
        except (StoreError, KeyError, ValueError):
            return False
        self.passed = int(path.stem.partition("-")[2])
        self.states = states
        self.no_ops = {(unit, precision) for unit, precision in facts["no_ops"]}
        self.sizes = {(unit, precision): size for unit, precision, size in facts["sizes"]}
        return True

    def _drop_all_but(self, name: str) -> None:
        for path in self._folder.glob(_FILES):
            if path.name != name:
                path.unlink()
