"""The quantize stage: calibration tokens in, codes of every block in every scheme out."""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from quantflow.calibrate.stream import CalibratedBlock, bare_blocks, calibrate_blocks
from quantflow.data.windows import load_windows
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.model.weights import CountingReader
from quantflow.pipeline.events import Reporter
from quantflow.quantize.block import quantize_block
from quantflow.quantize.codes import block_file, save_block
from quantflow.quantize.outcome import QuantizeRecord, save_quantize_record
from quantflow.quantize.params import QuantizeParams
from quantflow.quantize.record import BlockRecords, report_notices
from quantflow.quantize.sizes import SPILL_BYTES
from quantflow.source.checkpoint import load_checkpoint


def run(params: QuantizeParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Stream the lossless model over the calibration tokens; write each block's codes as it is done.

    One forward serves all candidates, and every block's weights are read once. Writes
    `codes/<scheme>/block-NNNNN.safetensors` and `quantize.json`: what it took, and the searches' outcomes.

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
    calibrates = any(scheme.method != "rtn" for scheme in params.candidates)
    products = getattr(torch, params.calibration_dtype)
    scales = any("awq" in scheme.method for scheme in params.candidates)
    searched = frozenset(fold.unit for fold in decoder.family.folds) if scales else frozenset[str]()
    opened = (
        _calibrated(decoder, batches, products, searched, reporter)
        if calibrates
        else _bare(decoder, records, reporter)
    )
    with opened as (first, blocks):
        # What is read before the first block counts with it; after an interruption it has been counted.
        before = reader.bytes_read if first else 0
        for block in blocks:
            results, notices = quantize_block(
                block,
                decoder.family,
                params.candidates,
                stored_as=getattr(torch, checkpoint.half_dtype),
            )
            for scheme_id, result in results.items():
                save_block(block_file(output, scheme_id, block.index), result.codes)
            prefix = decoder.family.block_name(block.index)
            records.keep(block.index, prefix, results, notices, reader.bytes_read - before)
            before = reader.bytes_read
            del results  # the next block's forward does without them
    done = records.load(decoder.num_blocks)
    report_notices([notice for block in done for notice in block["notices"]], reporter)
    record = QuantizeRecord(
        calibration_tokens=sum(batch.numel() for batch in batches) if calibrates else 0,
        forwards=len(done) * (1 - head_share(decoder)) / decoder.num_blocks if calibrates else 0.0,
        bytes_read=sum(block["bytes_read"] for block in done),
        weight_bytes=sum(reader.spec(name).bytes for name in reader.names()),
        searches={
            scheme.id: {unit: found for block in done for unit, found in block["searches"][scheme.id].items()}
            for scheme in params.candidates
        },
    )
    save_quantize_record(output, record)


@contextmanager
def _calibrated(
    decoder: StreamedDecoder,
    batches: list[torch.Tensor],
    products: torch.dtype,
    searched: frozenset[str],
    reporter: Reporter,
) -> Generator[tuple[int, Generator[CalibratedBlock]]]:
    progress = PassProgress(reporter)
    states = BlockPass(decoder, batches, progress, products, spill_bytes=SPILL_BYTES)
    what = "Calibrating and quantizing"
    if states.passed:
        what += f", going on after block {states.passed} of {decoder.num_blocks}"
    with reporter.track(what, decoder.num_blocks * len(batches)) as advance:
        advance(states.passed * len(batches))
        yield states.passed, calibrate_blocks(states, decoder.family.units, advance, searched)


@contextmanager
def _bare(
    decoder: StreamedDecoder, records: BlockRecords, reporter: Reporter
) -> Generator[tuple[int, Generator[CalibratedBlock]]]:
    with reporter.track("Rounding", decoder.num_blocks) as advance:
        first = records.done()
        advance(first)
        yield first, bare_blocks(decoder, first, advance)


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
