"""The quantize stage: calibration tokens in, codes of every block out."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from quantflow.calibrate.stream import calibrate_blocks
from quantflow.data.windows import load_windows
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.quantize.block import quantize_block_awq
from quantflow.quantize.codes import block_file, save_block
from quantflow.quantize.params import QuantizeParams
from quantflow.source.checkpoint import load_checkpoint


def run(params: QuantizeParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Stream the lossless model over the calibration tokens; write each block's codes as it is done.

    Writes `codes/block-NNNNN.safetensors` and `quantize.json`, the searches' outcomes by unit.

    Raises:
        QuantizationError: A weight or an activation is not finite.
    """
    checkpoint = load_checkpoint(inputs["source"])
    folder = checkpoint.folder
    decoder = StreamedDecoder(folder, SafetensorsReader(folder), params.device, torch.float32)
    batches = calibration_batches(inputs["data"], params.batch_tokens)
    products = getattr(torch, params.calibration_dtype)
    states = BlockPass(decoder, batches, PassProgress(reporter), products)
    block_file(output, 0).parent.mkdir(exist_ok=True)
    what = "Calibrating and quantizing"
    if states.passed:
        what += f", going on after block {states.passed} of {decoder.num_blocks}"
    with reporter.track(what, decoder.num_blocks * len(batches)) as advance:
        advance(states.passed * len(batches))
        for block in calibrate_blocks(states, decoder.family.units, advance):
            quantized = quantize_block_awq(
                block,
                decoder.family,
                bits=params.bits,
                group_size=params.group_size,
                stored_as=getattr(torch, checkpoint.half_dtype),
            )
            save_block(block_file(output, block.index), quantized.codes)
            choices = {
                f"{decoder.family.block_name(block.index)}.{unit}": {
                    "exponent": choice.exponent,
                    "loss": choice.loss,
                }
                for unit, choice in quantized.choices.items()
            }
            _searches_file(reporter, block.index).write_text(json.dumps(choices))
    searches: dict[str, dict[str, float]] = {}
    for index in range(decoder.num_blocks):
        searches |= json.loads(_searches_file(reporter, index).read_text())
    record = {"calibration_tokens": sum(batch.numel() for batch in batches), "searches": searches}
    (output / "quantize.json").write_text(json.dumps(record, indent=1, sort_keys=True))


def _searches_file(reporter: Reporter, index: int) -> Path:
    return reporter.progress_folder / f"searches-{index:05d}.json"


def calibration_batches(data: Path, batch_tokens: int) -> list[torch.Tensor]:
    """The calibration windows, all of one length, as int64 batches `[B, T]`."""
    windows = load_windows(data / "calibration.safetensors")
    length = int(windows.offsets[1] - windows.offsets[0])
    ids = torch.from_numpy(windows.tokens.astype("int64")).reshape(-1, length)
    at_once = max(1, batch_tokens // length)
    return [ids[first : first + at_once] for first in range(0, len(ids), at_once)]
