"""What linear layers get of calibration text and of production text: one streamed pass over both."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from quantflow.calibrate.input_ranges import load_ranges, ranges_file
from quantflow.data.windows import Windows
from quantflow.drift.record import Activations, OutsideRange
from quantflow.measure.batches import Batch, make_batches
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.pipeline.events import Reporter
from quantflow.quantize.sizes import SPILL_BYTES

SHOWN_UNITS = 10
"""Units that are named; a page has no room for all."""

FIRST, SECOND, PRODUCTION = range(3)
"""Parts of the text: two halves of calibration documents, and production."""


@dataclass(frozen=True)
class Seen:
    """Counts of one unit's input.

    Attributes:
        outside: Production's values beyond the range of their channel in calibration.
        clipped: Production's values beyond the range of the whole input.
        values: Production's values.
        floor_outside: Values of the second half beyond the ranges of the first.
        floor_values: Values of the second half.
        reach: Largest magnitude in production over that in calibration.
        range_tokens: Tokens that calibration's ranges are of.
    """

    outside: int
    clipped: int
    values: int
    floor_outside: int
    floor_values: int
    reach: float
    range_tokens: int


class RangeWatcher:
    """A forward pre-hook of a unit's first linear: ranges of calibration, then what lies beyond them.

    Args:
        linear: What to listen to.
        batches: Part and real tokens of every batch to come, parts in order: real ones are true, [B, T].
        ranges: Low and high of every channel over all calibration tokens, `[d_in]`, and how many those are;
            None to take them from what comes.
    """

    def __init__(
        self,
        linear: nn.Module,
        batches: Sequence[tuple[int, Tensor]],
        ranges: tuple[Tensor, Tensor, int] | None,
    ) -> None:
        self._batches = iter(batches)
        self._given = ranges
        self._first: tuple[Tensor, Tensor] | None = None
        self._all: tuple[Tensor, Tensor] | None = None
        self._tokens = 0
        self._floor_outside = self._floor_values = self._outside = self._clipped = self._values = 0
        self._largest = 0.0
        self._handle = linear.register_forward_pre_hook(lambda module, args: self._see(args[0]))

    def finish(self) -> Seen:
        """What was seen; stop listening."""
        self._handle.remove()
        low, high, tokens = self._ranges()
        magnitude = float(torch.maximum(low.abs().max(), high.abs().max()))
        return Seen(
            self._outside,
            self._clipped,
            self._values,
            self._floor_outside,
            self._floor_values,
            self._largest / magnitude if magnitude else math.inf,
            tokens,
        )

    def _see(self, inputs: Tensor) -> None:
        part, real = next(self._batches)
        x = inputs[real.to(inputs.device)].float()
        if part == PRODUCTION:
            low, high, _ = self._ranges()
            low, high = low.to(x.device), high.to(x.device)
            self._outside += int(((x < low) | (x > high)).sum())
            self._clipped += int(((x < low.min()) | (x > high.max())).sum())
            self._values += x.numel()
            self._largest = max(self._largest, float(x.abs().max()))
            return
        if part == SECOND and self._first is not None:
            self._floor_outside += int(((x < self._first[0]) | (x > self._first[1])).sum())
            self._floor_values += x.numel()
        self._all = _wider(self._all, x)
        self._tokens += len(x)
        if part == FIRST:
            self._first = self._all

    def _ranges(self) -> tuple[Tensor, Tensor, int]:
        if self._given is not None:
            return self._given
        assert self._all is not None  # calibration comes first
        return (*self._all, self._tokens)


def _wider(ranges: tuple[Tensor, Tensor] | None, x: Tensor) -> tuple[Tensor, Tensor]:
    low, high = x.amin(0), x.amax(0)
    if ranges is None:
        return low, high
    return torch.minimum(ranges[0], low), torch.maximum(ranges[1], high)


@torch.no_grad()
def run_texts(
    decoder: StreamedDecoder,
    parts: Sequence[Windows],
    batch_tokens: int,
    quantized: Path | None,
    reporter: Reporter,
) -> tuple[Tensor, Activations]:
    """Run the lossless model over parts of text, each block's weights read once.

    Args:
        decoder: The model.
        parts: Windows of the first and the second half of calibration documents, and of production.
        batch_tokens: Most tokens of a batch.
        quantized: Output of the quantize stage where it holds calibrated ranges; None to take ranges from
            the parts.
        reporter: Is told of progress, and keeps it.

    Returns:
        Final hidden states before the head at every scored position, part after part, float32 on the CPU,
        [positions, d]; and how inputs range.
    """
    batches: list[tuple[int, Batch]] = [
        (part, batch) for part, windows in enumerate(parts) for batch in make_batches(windows, batch_tokens)
    ]
    real = [(part, _real(batch)) for part, batch in batches]
    ids = [torch.from_numpy(batch.ids) for _, batch in batches]
    kept = _Kept(reporter)
    progress = PassProgress(reporter)
    states = BlockPass(decoder, ids, progress, spill_bytes=SPILL_BYTES)
    if any(not kept.has(index) for index in range(states.passed)):  # the disk did not take them
        progress.drop()
        states = BlockPass(decoder, ids, progress, spill_bytes=SPILL_BYTES)
    with reporter.track("Comparing activations", decoder.num_blocks * len(batches)) as advance:
        advance(states.passed * len(batches))
        for index, block in states.blocks():
            kept.add(index, _watched(decoder, states, index, block, real, quantized, advance))
    sizes = [int(windows.scored_counts.sum()) for windows in parts]
    offsets = np.cumsum([0, *sizes])
    hidden = torch.empty(int(offsets[-1]), decoder.hidden_size, dtype=torch.float32)
    with decoder.loaded_around():
        for (part, batch), state in zip(batches, states.states(), strict=True):
            final = decoder.final(state)
            for row, start, at in batch.scored():
                begin = int(offsets[part]) + start
                hidden[begin : begin + at.stop - at.start] = final[row, at]
    names = [f"{decoder.family.block_name(index)}" for index in range(decoder.num_blocks)]
    seen = {
        f"{name}.{unit}": own for index, name in enumerate(names) for unit, own in kept.load(index).items()
    }
    return hidden, _summed(seen, sampled=quantized is None)


def _watched(
    decoder: StreamedDecoder,
    states: BlockPass,
    index: int,
    block: nn.Module,
    batches: Sequence[tuple[int, Tensor]],
    quantized: Path | None,
    advance: Callable[[int], None],
) -> dict[str, Seen]:
    calibrated = load_ranges(ranges_file(quantized, index)) if quantized is not None else {}
    watchers = {
        unit: RangeWatcher(
            block.get_submodule(linears[0]),
            batches,
            (own.low, own.high, own.tokens) if (own := calibrated.get(unit)) is not None else None,
        )
        for unit, linears in decoder.family.units.items()
    }
    states.run(index, block, advance)
    return {unit: watcher.finish() for unit, watcher in watchers.items()}


def _real(batch: Batch) -> Tensor:
    """Which places of a batch are tokens and not padding, [B, T]."""
    return torch.from_numpy(np.arange(batch.ids.shape[1]) < batch.lengths[:, None])


class _Kept:
    """Counts of finished blocks, which an interruption does not lose."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._found: dict[int, dict[str, Seen]] = {}

    def has(self, index: int) -> bool:
        return index in self._found or self._path(index).exists()

    def add(self, index: int, seen: dict[str, Seen]) -> None:
        self._found[index] = seen
        text = json.dumps({unit: asdict(own) for unit, own in seen.items()})
        self._reporter.keep(partial(_write_whole, self._path(index), text))

    def load(self, index: int) -> Mapping[str, Seen]:
        if index not in self._found:
            content = json.loads(self._path(index).read_text(encoding="utf-8"))
            self._found[index] = {unit: Seen(**own) for unit, own in content.items()}
        return self._found[index]

    def _path(self, index: int) -> Path:
        return self._reporter.progress_folder / f"seen-{index:05d}.json"


def _write_whole(path: Path, text: str) -> None:
    partial_path = path.with_suffix(".partial")
    partial_path.write_text(text, encoding="utf-8")
    partial_path.replace(path)


def _summed(seen: Mapping[str, Seen], *, sampled: bool) -> Activations:
    units = [_outside([own], unit) for unit, own in seen.items()]
    units.sort(key=lambda own: (-own.outside, own.unit))
    return Activations(
        ranges="sample" if sampled else "calibration",
        range_tokens=max(own.range_tokens for own in seen.values()),
        total=_outside(list(seen.values())),
        worst=tuple(units[:SHOWN_UNITS]),
    )


def _outside(seen: Sequence[Seen], unit: str = "") -> OutsideRange:
    values = sum(own.values for own in seen)
    return OutsideRange(
        unit=unit,
        outside=sum(own.outside for own in seen) / values,
        floor=sum(own.floor_outside for own in seen) / max(1, sum(own.floor_values for own in seen)),
        clipped=sum(own.clipped for own in seen) / values,
        reach=min(max(own.reach for own in seen), float(np.finfo(np.float32).max)),
    )
