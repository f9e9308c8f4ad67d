"""The quantize stage: calibration tokens in, codes of every block in every scheme out."""

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from quantflow.calibrate.input_ranges import RangeCollector, ranges_file, save_ranges
from quantflow.calibrate.stream import CalibratedBlock, bare_blocks, calibrate_blocks
from quantflow.data.windows import load_windows
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass
from quantflow.model.head import head_weight
from quantflow.model.passes import PassProgress
from quantflow.model.units import HEAD
from quantflow.model.weights import CountingReader
from quantflow.pipeline.events import Reporter
from quantflow.quantize.block import Notice, quantize_block
from quantflow.quantize.codes import block_file, save_block
from quantflow.quantize.int8_block import Int8Block, int8_file, save_int8_block
from quantflow.quantize.int8_units import int8_block, int8_head
from quantflow.quantize.outcome import QuantizeRecord, save_quantize_record
from quantflow.quantize.params import QuantizeParams, Scheme
from quantflow.quantize.record import BlockRecords, report_notices
from quantflow.quantize.sizes import SPILL_BYTES
from quantflow.source.checkpoint import load_checkpoint


def run(params: QuantizeParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Stream the lossless model over the calibration tokens; write each block's codes as it is done.

    One forward serves all candidates, and every block's weights are read once. Writes
    `codes/<scheme>/block-NNNNN.safetensors` and `quantize.json`: what it took, and the searches' outcomes.
    For schemes in INT8 also `codes/<scheme>/head.safetensors` and, under `inputs/`, what inputs range over.

    Raises:
        QuantizationError: A weight or an activation is not finite.
    """
    checkpoint = load_checkpoint(inputs["source"])
    reader = CountingReader(checkpoint.folder)
    decoder = StreamedDecoder(checkpoint.folder, reader, params.device, torch.float32)
    batches = calibration_batches(inputs["data"], params.batch_tokens)
    records = BlockRecords(reporter.progress_folder)
    for scheme in params.candidates:
        block_file(output, scheme.id, 0).parent.mkdir(parents=True, exist_ok=True)
    grids = [scheme for scheme in params.candidates if not scheme.is_int8]
    int8 = [scheme for scheme in params.candidates if scheme.is_int8]
    calibrates = any(scheme.method != "rtn" for scheme in params.candidates)
    products = getattr(torch, params.calibration_dtype)
    scales = any("awq" in scheme.method for scheme in params.candidates)
    searched = frozenset(fold.unit for fold in decoder.family.folds) if scales else frozenset[str]()
    opened = (
        _calibrated(decoder, batches, products, params.candidates, searched, reporter)
        if calibrates
        else _bare(decoder, records, reporter)
    )
    notices_of_head: tuple[Notice, ...] = ()
    with opened as ready:
        # What is read before the first block counts with it; after an interruption it has been counted.
        before = reader.bytes_read if ready.first else 0
        for block in ready.blocks:
            results, notices = quantize_block(
                block,
                decoder.family,
                grids,
                stored_as=getattr(torch, checkpoint.half_dtype),
            )
            for scheme_id, result in results.items():
                save_block(block_file(output, scheme_id, block.index), result.codes)
            if int8:
                values, more = int8_block(block, decoder.family, int8)
                notices += more
                for scheme_id, own in values.items():
                    save_int8_block(int8_file(output, scheme_id, block.index), own)
                save_ranges(ranges_file(output, block.index), block.ranges)
                del values
            prefix = decoder.family.block_name(block.index)
            records.keep(block.index, prefix, results, notices, reader.bytes_read - before)
            before = reader.bytes_read
            del results  # the next block's forward does without them
        if int8 and ready.states is not None:
            notices_of_head = _quantize_head(decoder, ready.states, int8, output)
    done = records.load(decoder.num_blocks)
    of_blocks = [notice for block in done for notice in block["notices"]]
    report_notices([*of_blocks, *map(asdict, notices_of_head)], reporter)
    record = QuantizeRecord(
        calibration_tokens=sum(batch.numel() for batch in batches) if calibrates else 0,
        forwards=len(done) * (1 - head_share(decoder)) / decoder.num_blocks if calibrates else 0.0,
        bytes_read=sum(block["bytes_read"] for block in done),
        weight_bytes=sum(reader.spec(name).bytes for name in reader.names()),
        searches={
            scheme.id: {
                unit: found for block in done for unit, found in block["searches"].get(scheme.id, {}).items()
            }
            for scheme in params.candidates
        },
    )
    save_quantize_record(output, record)


@dataclass(frozen=True)
class _Opened:
    """Blocks to quantize.

    Attributes:
        first: Index of the first of them.
        blocks: They, one after the other.
        states: What passes them; None where nothing does.
    """

    first: int
    blocks: Generator[CalibratedBlock]
    states: BlockPass | None


@contextmanager
def _calibrated(
    decoder: StreamedDecoder,
    batches: list[torch.Tensor],
    products: torch.dtype,
    schemes: Sequence[Scheme],
    searched: frozenset[str],
    reporter: Reporter,
) -> Generator[_Opened]:
    progress = PassProgress(reporter)
    states = BlockPass(decoder, batches, progress, products, spill_bytes=SPILL_BYTES)
    what = "Calibrating and quantizing"
    if states.passed:
        what += f", going on after block {states.passed} of {decoder.num_blocks}"
    grams = any(scheme.method != "rtn" and not scheme.is_int8 for scheme in schemes)
    ranges = any(scheme.is_int8 for scheme in schemes)
    with reporter.track(what, decoder.num_blocks * len(batches)) as advance:
        advance(states.passed * len(batches))
        blocks = calibrate_blocks(states, decoder.family.units, advance, searched, grams=grams, ranges=ranges)
        yield _Opened(states.passed, blocks, states)


@contextmanager
def _bare(decoder: StreamedDecoder, records: BlockRecords, reporter: Reporter) -> Generator[_Opened]:
    with reporter.track("Rounding", decoder.num_blocks) as advance:
        first = records.done()
        advance(first)
        yield _Opened(first, bare_blocks(decoder, first, advance), None)


def _quantize_head(
    decoder: StreamedDecoder, states: BlockPass, schemes: Sequence[Scheme], output: Path
) -> tuple[Notice, ...]:
    """INT8 values of the head, whose input is what the last block's output comes to."""
    collector = RangeCollector(HEAD, states.tokens)
    with decoder.loaded_around():
        for state in states.states():
            collector.add(decoder.final(state))
    ranges, weight = collector.finish(), head_weight(decoder)
    values, notices = ({}, ()) if weight is None else int8_head(weight, ranges, schemes)
    for scheme in schemes:
        save_int8_block(int8_file(output, scheme.id, None), values.get(scheme.id, Int8Block()))
    save_ranges(ranges_file(output, None), {HEAD: ranges})
    return notices


def head_share(decoder: StreamedDecoder) -> float:
    """Share of the head in a forward's arithmetic, attention's products not counted."""
    head = decoder.vocab_size * decoder.hidden_size
    inside = f"{decoder.family.blocks}."
    shapes = [shape for name, shape in decoder.expected_tensors().items() if name.startswith(inside)]
    return head / (head + sum(math.prod(shape) for shape in shapes if len(shape) > 1))


def calibration_batches(data: Path, batch_tokens: int) -> list[torch.Tensor]:
    """The calibration windows, all of one length, as int64 batches `[B, T]`."""
    windows = load_windows(data / "calibration.safetensors")
    length = int(windows.offsets[1] - windows.offsets[0])
    ids = torch.from_numpy(windows.tokens.astype("int64")).reshape(-1, length)
    at_once = max(1, batch_tokens // length)
    return [ids[first : first + at_once] for first in range(0, len(ids), at_once)]
