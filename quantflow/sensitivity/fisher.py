"""Fisher's estimate of every unit's KL from one forward and one backward pass, streamed.

The KL of a small change Δy at a unit's output is ½·Δyᵀ·F·Δy, where F is the Fisher information of the
next-token distributions there: the mean of g·gᵀ over gradients g of the loss of labels that the model draws
itself. So KL ≈ ½·Σ_t (g_t·Δy_t)² per scored position, with the loss summed over tokens and the products over
all outputs of the unit summed before they are squared, at each position t. The weights are read twice: once
forwards, with the states before every block put on disk, and once in reverse, where each block is run again
from there and differentiated.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from quantflow.errors import SourceError
from quantflow.model.passes import PassProgress
from quantflow.model.units import HEAD
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.part import PartReporter
from quantflow.sensitivity.boundaries import Boundaries
from quantflow.sensitivity.histograms import OutputHistograms
from quantflow.sensitivity.logits import loss_gradients
from quantflow.sensitivity.measured import NOTHING, Key, Measured, keep_measured, kept_measured, merged
from quantflow.sensitivity.spent import ForwardParts
from quantflow.sensitivity.stored import StoredCodes, open_block
from quantflow.sensitivity.swap import BlockSwaps, Swap, lossless

HEAD_FILE = "scores-head.json"


def fisher_scores(
    boundaries: Boundaries,
    codes: Mapping[str, StoredCodes],
    reporter: Reporter,
    what: str,
    *,
    histograms: bool = False,
) -> Measured:
    """Every unit in every precision, and one block in which nothing is swapped.

    The head's scores are exact: its effect on the logits takes no more than its estimate would.

    Args:
        boundaries: The lossless states before every block, all there.
        codes: Precision → its codes.
        reporter: Is told of progress, and keeps it.
        what: What progress is shown as.
        histograms: Whether histograms of every unit's outputs before and after are compared, too.

    Raises:
        SourceError: A gradient is not finite.
    """
    decoder, text = boundaries.decoder, boundaries.text
    part = PartReporter(reporter, "backward")
    progress, parts = PassProgress(part), ForwardParts.of(decoder)
    last = decoder.num_blocks
    shapes = [torch.Size((*batch.ids.shape, decoder.hidden_size)) for batch in text.batches]
    done, gradients, found = _kept(part, progress, last, shapes)
    if not found:
        gradients, of_head = _behind_blocks(boundaries, codes, histograms=histograms)
        keep_measured(part.progress_folder / HEAD_FILE, of_head, part)
        found = [of_head]
    with part.track(what, last) as advance:
        advance(done)
        for index in range(last - 1 - done, -1, -1):
            with decoder.loaded_block(index) as block:
                swaps = open_block(codes, index)
                work = _BlockWork(
                    boundaries, index, block, swaps, controls=index == last - 1, histograms=histograms
                )
                for number, gradient in enumerate(gradients):
                    gradients[number] = work.differentiate(number, gradient.to(decoder.device))
                found.append(work.finished(parts))
            keep_measured(part.progress_folder / _file(index), found[-1], part)
            progress.keep(last - index, gradients)
            advance(1)
    return merged(reversed(found))


def _behind_blocks(
    boundaries: Boundaries, codes: Mapping[str, StoredCodes], *, histograms: bool
) -> tuple[list[Tensor], Measured]:
    """The loss's gradient behind the last block, batch by batch, and what swapping the head does, exactly."""
    decoder, text, parts = boundaries.decoder, boundaries.text, ForwardParts.of(boundaries.decoder)
    heads = {precision: head for precision, own in codes.items() if (head := own.open_head()) is not None}
    sums = {precision: np.zeros(len(text.windows)) for precision in heads}
    last = partial(boundaries.state, decoder.num_blocks)
    outputs = OutputHistograms(text) if histograms else None

    def heard(precision: str, windows: NDArray[np.int64], logits: Tensor, change: Tensor) -> None:
        if outputs is not None:
            outputs.add_rows((HEAD, precision), HEAD, windows, logits, change)

    gradients = list(loss_gradients(decoder, text, last, heads=heads, kl_of_heads=sums, heard=heard))
    swapped = {"changes of outputs": len(heads) * parts.head} if heads else {}
    found = Measured(
        sums={(HEAD, precision): own for precision, own in sums.items()},
        forwards={"forward": parts.head, "backward": parts.head, **swapped},
        sizes={(HEAD, precision): head.bytes(HEAD) for precision, head in heads.items()},
        outputs={} if outputs is None else {(HEAD, p): outputs.kl((HEAD, p)) for p in heads},
    )
    return gradients, found


def _kept(
    part: PartReporter, progress: PassProgress, blocks: int, shapes: list[torch.Size]
) -> tuple[int, list[Tensor], list[Measured]]:
    """Blocks that an interrupted pass has been through, the gradients before them, and what it found."""
    kept = progress.load(shapes)
    if kept is None:
        return 0, [], []
    done, gradients = kept
    names = [HEAD_FILE, *(_file(index) for index in range(blocks - 1, blocks - 1 - done, -1))]
    found = [m for name in names if (m := kept_measured(part.progress_folder / name)) is not None]
    return (done, gradients, found) if len(found) == len(names) else (0, [], [])


def _file(index: int) -> str:
    """Where what was found of a block is kept."""
    return f"scores-{index:05d}.json"


@dataclass(frozen=True)
class _Heard:
    """What a linear was called with and gave: `[B, T, in]` and, in the graph, `[B, T, out]`."""

    x: Tensor
    y: Tensor


class _BlockWork:
    """One loaded block, differentiated batch by batch."""

    def __init__(
        self,
        boundaries: Boundaries,
        index: int,
        block: nn.Module,
        swaps: Mapping[str, BlockSwaps],
        *,
        controls: bool,
        histograms: bool,
    ) -> None:
        self._boundaries, self._index, self._block = boundaries, index, block
        self._swaps, self._controls = swaps, controls
        self._histograms = OutputHistograms(boundaries.text) if histograms else None
        self._family = boundaries.decoder.family
        self._prefix = self._family.block_name(index)
        keys = [self._key(unit, p) for unit in self._family.units for p in swaps if unit in swaps[p].units]
        windows = len(boundaries.text.windows)
        self._sums: dict[Key, NDArray[np.float64]] = {key: np.zeros(windows) for key in keys}
        if controls:
            self._sums[NOTHING] = np.zeros(windows)

    def differentiate(self, number: int, gradient: Tensor) -> Tensor:
        """Take a batch's gradient from behind the block to before it; score the block's units on the way."""
        hidden = self._boundaries.state(self._index, number).requires_grad_()
        with torch.enable_grad(), self._listening() as heard:
            output = self._boundaries.call(self._index, number).run(self._block, hidden)
        names = list(heard)
        results = torch.autograd.grad(output, [hidden, *(heard[name].y for name in names)], gradient)
        del output
        if not bool(torch.isfinite(results[0]).all()):
            raise SourceError("the gradient of its loss is NaN or infinite", where=self._prefix)
        with torch.no_grad():
            self._score(number, heard, dict(zip(names, results[1:], strict=True)))
        return results[0]

    def finished(self, parts: ForwardParts) -> Measured:
        """What was found of the block's units."""
        own = {self._key(unit, p): (unit, s) for p, s in self._swaps.items() for unit in s.units}
        candidates = len(self._swaps) + self._controls
        return Measured(
            sums=self._sums,
            forwards={
                "forward again": parts.block,
                "backward": parts.block,
                "changes of outputs": candidates * parts.block,
            },
            no_ops=frozenset(key for key, (unit, s) in own.items() if s.is_no_op(unit, self._block)),
            sizes={key: s.bytes(unit) for key, (unit, s) in own.items()},
            outputs={} if self._histograms is None else {key: self._histograms.kl(key) for key in own},
        )

    def _score(self, number: int, heard: Mapping[str, _Heard], gradients: Mapping[str, Tensor]) -> None:
        for precision, swaps in self._swaps.items():
            for unit in swaps.units:
                self._add(self._key(unit, precision), unit, number, heard, gradients, swaps.swap)
        if self._controls:
            for unit in self._family.units:
                self._add(NOTHING, unit, number, heard, gradients, lossless)

    def _add(
        self,
        key: Key,
        unit: str,
        number: int,
        heard: Mapping[str, _Heard],
        gradients: Mapping[str, Tensor],
        swap: Callable[[str, nn.Module], Swap],
    ) -> None:
        text = self._boundaries.text
        batch = text.batches[number]
        along = torch.zeros(batch.ids.shape, device=self._boundaries.decoder.device)
        for name in self._family.units[unit]:
            x, y = heard[name].x, heard[name].y.detach()
            changed: Swap = swap(name, self._block.get_submodule(name))
            delta = changed(x) - y
            if self._histograms is not None and key != NOTHING:
                self._histograms.add(key, name, number, y, delta)
            along = along + (gradients[name] * delta).sum(-1)
        rows = 0.5 * along.double().square().sum(-1)
        np.add.at(self._sums[key], text.window_of_row(batch), rows.cpu().numpy())

    @contextmanager
    def _listening(self) -> Iterator[dict[str, _Heard]]:
        heard: dict[str, _Heard] = {}
        with ExitStack() as stack:
            for name in self._family.linears:

                def listen(
                    module: nn.Module, args: tuple[Tensor, ...], output: Tensor, name: str = name
                ) -> None:
                    heard[name] = _Heard(args[0].detach(), output)

                stack.callback(self._block.get_submodule(name).register_forward_hook(listen).remove)
            yield heard

    def _key(self, unit: str, precision: str) -> Key:
        return f"{self._prefix}.{unit}", precision
