"""The KL that swapping one unit makes, exactly: restart from what enters its block, run the rest, compare.

All units of a wave share one reading of the weights: at each block the streams of units before it pass
through it, and those of its own units begin. A stream runs only the blocks from its unit's on.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import sha256

import torch
from torch import Tensor, nn

from quantflow.model.replaced import forwards_replaced
from quantflow.model.units import HEAD
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.part import PartReporter
from quantflow.sensitivity.boundaries import Boundaries
from quantflow.sensitivity.logits import streams_kl
from quantflow.sensitivity.measured import NOTHING, Key, Measured, keep_measured, kept_measured, merged
from quantflow.sensitivity.sizes import STREAM_BYTES
from quantflow.sensitivity.spent import ForwardParts
from quantflow.sensitivity.stored import StoredCodes, open_block
from quantflow.sensitivity.streams import StreamStates
from quantflow.sensitivity.swap import BlockSwaps


def exact_scores(
    boundaries: Boundaries,
    codes: Mapping[str, StoredCodes],
    keys: Sequence[Key],
    reporter: Reporter,
    *,
    control: int | None = None,
) -> Measured:
    """The KL of units, each swapped alone.

    Args:
        boundaries: The lossless states before every block, all there.
        codes: Precision → its codes.
        keys: Units and the precisions to swap them to, at least one.
        reporter: Is told of progress, and keeps it.
        control: The block where a stream begins in which nothing is swapped; None for no such stream.

    Raises:
        QuantizationError: With a unit swapped, logits are not finite.
    """
    blocks = block_of_unit(boundaries)
    order = sorted(keys, key=lambda key: blocks[key[0]])
    decoder = boundaries.decoder
    stream = boundaries.text.tokens * decoder.hidden_size * decoder.dtype.itemsize
    at_once = max(1, STREAM_BYTES // stream)
    waves = [order[begin : begin + at_once] for begin in range(0, len(order), at_once)]
    nothing = {} if control is None else {NOTHING: control}
    return merged(
        _wave(
            boundaries,
            codes,
            {**(nothing if number == 0 else {}), **{key: blocks[key[0]] for key in wave}},
            reporter,
        )
        for number, wave in enumerate(waves)
    )


def block_of_unit(boundaries: Boundaries) -> dict[str, int]:
    """Full name of every unit → the position of its block; the head comes after the last."""
    family, blocks = boundaries.decoder.family, boundaries.decoder.num_blocks
    places = {f"{family.block_name(index)}.{unit}": index for index in range(blocks) for unit in family.units}
    return {**places, HEAD: blocks}


def exact_cost(first_blocks: Sequence[int], blocks: int, parts: ForwardParts) -> float:
    """Whole forwards that streams take which begin at these blocks."""
    return sum(parts.suffix(first, blocks) for first in first_blocks)


def _wave(
    boundaries: Boundaries,
    codes: Mapping[str, StoredCodes],
    starts: Mapping[Key, int],
    reporter: Reporter,
) -> Measured:
    """Streams of some units, at once; what an interrupted scan found of them is taken up."""
    name = sha256("\n".join(f"{unit} {precision}" for unit, precision in starts).encode()).hexdigest()[:16]
    part = PartReporter(reporter, f"exact-{name}")
    result = part.progress_folder / "scores.json"
    kept = kept_measured(result)
    if kept is not None:
        return kept
    decoder = boundaries.decoder
    first, last = min(starts.values()), decoder.num_blocks
    streams = StreamStates(part, lambda state: state.to(decoder.device, decoder.dtype))
    what = f"Swapping {len(starts.keys() - {NOTHING})} units one by one"
    with part.track(what, last - first) as advance:
        begin = max(first, streams.passed)
        advance(begin - first)
        for index in range(begin, last):
            _pass_block(boundaries, codes, index, starts, streams)
            streams.keep(index + 1)
            advance(1)
    lossless = partial(boundaries.state, last)
    heads = {
        number: head
        for number, (unit, precision) in enumerate(starts)
        if unit == HEAD and (head := codes[precision].open_head()) is not None
    }
    sums = streams_kl(
        decoder,
        boundaries.text,
        lossless,
        [streams.states[key].__getitem__ if key in streams.states else lossless for key in starts],
        heads,
    )
    parts = ForwardParts.of(decoder)
    measured = Measured(
        sums=dict(zip(starts, sums, strict=True)),
        forwards={"swapped": exact_cost(list(starts.values()), last, parts), "lossless logits": parts.head},
        no_ops=frozenset(streams.no_ops),
        sizes=streams.sizes | {key: heads[n].bytes(HEAD) for n, key in enumerate(starts) if n in heads},
    )
    keep_measured(result, measured, part)
    streams.drop()
    return measured


@torch.no_grad()
def _pass_block(
    boundaries: Boundaries,
    codes: Mapping[str, StoredCodes],
    index: int,
    starts: Mapping[Key, int],
    streams: StreamStates,
) -> None:
    """Take the streams that have begun through a block, and begin those of its own units."""
    batches = range(len(boundaries.text.batches))
    beginning = [key for key, first in starts.items() if first == index]
    needed = {precision: codes[precision] for _, precision in beginning if precision in codes}
    swaps = open_block(needed, index)
    with boundaries.decoder.loaded_block(index) as block:

        def run(number: int, state: Tensor) -> Tensor:
            return boundaries.call(index, number).run(block, state)

        for states in streams.states.values():
            for number in batches:
                states[number] = run(number, states[number])
        for key in beginning:
            if key == NOTHING:
                streams.states[key] = [run(n, boundaries.state(index, n)) for n in batches]
                continue
            unit, own = key[0].rpartition(".")[2], swaps[key[1]]
            with _swapped(block, boundaries.decoder.family.units[unit], own):
                streams.states[key] = [run(n, boundaries.state(index, n)) for n in batches]
            streams.sizes[key] = own.bytes(unit)
            if own.is_no_op(unit, block):
                streams.no_ops.add(key)


@contextmanager
def _swapped(block: nn.Module, linears: Sequence[str], swaps: BlockSwaps) -> Iterator[None]:
    """Let a unit's codes stand in for its weights."""
    with ExitStack() as stack:
        for name in linears:
            linear = block.get_submodule(name)
            stack.enter_context(forwards_replaced([linear], swaps.swap(name, linear)))
        yield
