"""The refine stage: GPTQ once more, each block seeing the quantized ones before it, if that is any better.

Codes fitted on the lossless activations know nothing of the errors that reach a block. Once it is settled
which units are quantized, one sequential pass can make up for some of them; on text that it was not fitted on
it may also do harm. Both are measured on the selection windows, and the better one is passed on.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from quantflow.calibrate.stream import calibrate_sequentially
from quantflow.data.windows import SELECTION_FILE, Windows, load_windows, scored_documents
from quantflow.errors import QuantizationError
from quantflow.measure.batches import make_batches, scored_targets
from quantflow.measure.hidden import hidden_to_disk
from quantflow.measure.scoring import Rows, score_against
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.model.units import units_of
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.part import PartReporter
from quantflow.quantize.block import quantize_block
from quantflow.quantize.codes import LinearCodes, block_file, dequantize, load_linear, save_block
from quantflow.quantize.outcome import RefineRecord, save_refine_record
from quantflow.quantize.params import RefineParams
from quantflow.quantize.quantized_reader import QuantizedReader
from quantflow.quantize.record import BlockRecords, report_notices
from quantflow.quantize.sizes import SPILL_BYTES
from quantflow.quantize.stage import calibration_batches, head_share
from quantflow.sensitivity.kept import units_kept
from quantflow.source.checkpoint import load_checkpoint

READ_ONLY = 0o444
"""As all that the store holds."""


def run(params: RefineParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Refine the codes of a GPTQ scheme under an artifact's assignment.

    Writes `codes/<scheme>/block-NNNNN.safetensors`, refined or as they came, and `refine.json`.

    Args:
        params: Scheme, kept units, device and size of batches.
        inputs: Finished outputs of `source`, `data` and, as `codes`, `quantize`; of `assignment` where kept
            units were chosen.
        output: Where to write.
        reporter: Receives progress and events.

    Raises:
        QuantizationError: The quantized model overflows on the calibration or selection text.
    """
    folder = load_checkpoint(inputs["source"]).folder
    decoder = StreamedDecoder(folder, SafetensorsReader(folder), params.device, torch.float32)
    windows = load_windows(inputs["data"] / SELECTION_FILE)
    if scored_documents(windows).size == 0:
        reporter.event(
            "refinement-not-judged",
            "There is no selection text to tell whether GPTQ's sequential pass is any better: its codes are "
            "taken as they were fitted on the lossless activations.",
        )
        _pass_on(inputs["codes"], output, params.scheme.id, decoder.num_blocks)
        save_refine_record(
            output, RefineRecord(taken="plain", kl_plain=None, kl_refined=None, positions=0, forwards=0.0)
        )
        return
    kept = units_kept(inputs, params.keep, decoder.family, decoder.num_blocks)
    quantized = frozenset(
        linear
        for unit, linears in units_of(decoder.family, decoder.num_blocks).items()
        if unit not in kept
        for linear in linears
    )
    refined = reporter.progress_folder / "refined"
    _refine(params, decoder, quantized, inputs["data"], refined, reporter)
    lossless = _run(decoder, windows, params, reporter, "baseline")
    kl = {}
    for name, codes in (("plain", inputs["codes"]), ("refined", refined)):
        artifact = _quantized(params, decoder, quantized, codes)
        kl[name] = _mean_kl(
            decoder,
            lossless,
            artifact,
            _run(artifact, windows, params, reporter, name),
            windows,
            PartReporter(reporter, f"score-{name}"),
        )
    taken: Literal["refined", "plain"] = "refined" if kl["refined"] < kl["plain"] else "plain"
    best = refined if taken == "refined" else inputs["codes"]
    _pass_on(best, output, params.scheme.id, decoder.num_blocks)
    record = RefineRecord(
        taken=taken,
        kl_plain=kl["plain"],
        kl_refined=kl["refined"],
        positions=int(windows.scored_counts.sum()),
        forwards=2 * (1 - head_share(decoder)),
    )
    save_refine_record(output, record)


def _refine(
    params: RefineParams,
    decoder: StreamedDecoder,
    quantized: frozenset[str],
    data: Path,
    folder: Path,
    reporter: Reporter,
) -> None:
    """The sequential pass, unless an interrupted run made it; codes of every block to `folder`."""
    part = PartReporter(reporter, "pass")
    records = BlockRecords(part.progress_folder)
    if records.done() < decoder.num_blocks:
        _pass(params, decoder, quantized, calibration_batches(data, params.batch_tokens), folder, part)
    done = records.load(decoder.num_blocks)
    report_notices([notice for record in done for notice in record["notices"]], reporter)


def _pass(
    params: RefineParams,
    decoder: StreamedDecoder,
    quantized: frozenset[str],
    batches: list[torch.Tensor],
    folder: Path,
    part: PartReporter,
) -> None:
    products, records = getattr(torch, params.calibration_dtype), BlockRecords(part.progress_folder)
    states = BlockPass(decoder, batches, PassProgress(part), products, spill_bytes=SPILL_BYTES)
    block_file(folder, params.scheme.id, 0).parent.mkdir(parents=True, exist_ok=True)
    with part.track("Refining", 2 * decoder.num_blocks * len(batches)) as advance:
        advance(2 * states.passed * len(batches))
        for block in calibrate_sequentially(states, decoder.family.units, advance):
            prefix = decoder.family.block_name(block.index)
            units = {
                unit: linears
                for unit, linears in decoder.family.units.items()
                if f"{prefix}.{linears[0]}" in quantized
            }
            family = replace(decoder.family, units=units, folds=())  # GPTQ has no scales to fold
            results, notices = quantize_block(block, family, [params.scheme], stored_as=torch.float32)
            codes = results[params.scheme.id].codes
            save_block(block_file(folder, params.scheme.id, block.index), codes)
            for name in codes.linears:
                weight = block.module.get_submodule(name.removeprefix(f"{prefix}.")).get_parameter("weight")
                weight.data.copy_(dequantize(codes.linears[name]))
            records.keep(block.index, prefix, results, notices, bytes_read=0)


def _quantized(
    params: RefineParams, decoder: StreamedDecoder, quantized: frozenset[str], folder: Path
) -> StreamedDecoder:
    """The model with codes of a folder."""
    blocks = {
        linear: index
        for index in range(decoder.num_blocks)
        for linear in quantized
        if linear.startswith(f"{decoder.family.block_name(index)}.")
    }

    def codes(linear: str, weight: torch.Tensor) -> LinearCodes:
        return load_linear(block_file(folder, params.scheme.id, blocks[linear]), linear)

    reader = QuantizedReader(decoder.folder, quantized, codes)
    return StreamedDecoder(decoder.folder, reader, params.device, torch.float32)


def _run(
    decoder: StreamedDecoder, windows: Windows, params: RefineParams, reporter: Reporter, name: str
) -> Rows:
    """A model's hidden states on the selection windows."""
    part = PartReporter(reporter, f"run-{name}")
    batches = make_batches(windows, params.batch_tokens)
    return hidden_to_disk(decoder, batches, part.progress_folder, part, f"Running the {name} model")


def _mean_kl(
    baseline: StreamedDecoder,
    lossless: Rows,
    artifact: StreamedDecoder,
    hidden: Rows,
    windows: Windows,
    reporter: Reporter,
) -> float:
    """Mean KL of the next-token distributions at all scored positions, nats per token."""
    samples = score_against(
        baseline,
        lossless,
        artifact,
        hidden,
        scored_targets(windows),
        scored_documents(windows),
        QuantizationError,
        reporter,
    )
    assert samples.kl is not None
    return float(samples.kl.mean())


def _pass_on(folder: Path, output: Path, scheme: str, blocks: int) -> None:
    """Give codes a place in the output without writing them once more, where the file system allows that."""
    block_file(output, scheme, 0).parent.mkdir(parents=True, exist_ok=True)
    for index in range(blocks):
        source, target = block_file(folder, scheme, index), block_file(output, scheme, index)
        target.unlink(missing_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
        target.chmod(READ_ONLY)  # the store leaves files that have other names as they are
