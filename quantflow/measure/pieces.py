"""Scoring piece by piece: what is scored is kept on disk, and an interrupted run goes on after it."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quantflow.errors import StoreError
from quantflow.model.safetensors_file import SafetensorsFile, TensorSpec, write_safetensors
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.pace import Pace

Piece = Mapping[str, NDArray[Any]]
"""Values by name, each [positions of the piece]."""


def score_in_pieces(
    positions: int, step: int, score: Callable[[int, int], Piece], reporter: Reporter
) -> Piece:
    """Score all positions, `step` at a time, from where an interrupted run had come to.

    Args:
        positions: Scored positions.
        step: Positions of a piece, the last one aside; the same whenever it goes on.
        score: Gives the values of the positions from … to.
        reporter: Is told of progress, and keeps it.

    Returns:
        The values of all positions.
    """
    kept = _KeptPieces(reporter)
    pieces = kept.load(positions, step)
    scored = sum(_size(piece) for piece in pieces)
    what = f"Scoring, going on after {scored} of {positions}" if scored else "Scoring"
    with reporter.track(what, positions) as advance:
        advance(scored)
        for begin in range(scored, positions, step):
            end = min(begin + step, positions)
            piece = score(begin, end)
            pieces.append(piece)
            kept.add(begin, piece)
            advance(end - begin)
    return _joined(pieces)


class _KeptPieces:
    """Pieces on disk, in files that each begin where the one before it ends."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._waiting: list[Piece] = []
        self._begin = 0
        self._pace = Pace()

    def load(self, positions: int, step: int) -> list[Piece]:
        """The values of the first positions, as far as they are kept without a gap."""
        found: list[Piece] = []
        end = 0
        while (piece := _read(self._path(end))) is not None:
            after = end + _size(piece)
            if after > positions or (after % step and after != positions):
                break
            found.append(piece)
            end = after
        return found

    def add(self, begin: int, piece: Piece) -> None:
        """Keep a piece, at once or with the next ones, as the cost allows."""
        if not self._waiting:
            self._begin = begin
        self._waiting.append(piece)
        if self._pace.due:
            with self._pace.keeping():
                together = _joined(self._waiting)
                if self._reporter.keep(partial(_write, self._path(self._begin), together)):
                    self._waiting = []

    def _path(self, begin: int) -> Path:
        return self._reporter.progress_folder / f"scores-{begin:012d}.safetensors"


def _write(path: Path, piece: Piece) -> None:
    tensors = {name: torch.from_numpy(values) for name, values in piece.items()}
    specs = [TensorSpec(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()]
    write_safetensors(path, specs, tensors.items(), {})


def _read(path: Path) -> Piece | None:
    """A file's values; None where there is none, or none that is whole."""
    try:
        file = SafetensorsFile(path, StoreError)
        piece = {name: file.read(name).numpy() for name in file.specs}
    except StoreError:
        return None
    return piece if len({values.size for values in piece.values()}) == 1 and _size(piece) else None


def _size(piece: Piece) -> int:
    return next(iter(piece.values())).size


def _joined(pieces: list[Piece]) -> Piece:
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
