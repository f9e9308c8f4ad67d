"""The yardstick stage: plain rounding to nearest, measured as an artifact is, for the reader of the report.

What a method's calibration is worth shows only beside what none would have cost, at the same bits, group size
and symmetry. Nothing is judged by it.
"""

from collections.abc import Mapping
from pathlib import Path

from quantflow.data.documents import load_documents
from quantflow.data.windows import scored_documents
from quantflow.errors import QuantizationError
from quantflow.measure.batches import make_batches, scored_targets
from quantflow.measure.evaluation import load_evaluation
from quantflow.measure.hidden import hidden_to_disk, stored_hidden
from quantflow.measure.measurement import save_measurement
from quantflow.measure.params import YardstickParams
from quantflow.measure.scoring import runtime_info, score_against
from quantflow.measure.summary import summarize
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.units import units_of
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.quantize.grid import GridKind
from quantflow.quantize.quantized_reader import QuantizedReader
from quantflow.quantize.rtn import quantize_rtn
from quantflow.sensitivity.kept import units_kept
from quantflow.source.checkpoint import load_checkpoint


def run(params: YardstickParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Measure the model rounded to nearest, on the evaluation windows and in the baseline's batches.

    Args:
        params: Bits, group size and symmetry; kept units; device and size of batches.
        inputs: Finished outputs of `source`, `data` and `baseline`; of `assignment` where kept units were
            chosen.
        output: Folder for measurement.json and samples.safetensors.
        reporter: Receives progress.

    Raises:
        QuantizationError: The rounded model's logits are not finite.
        DataError: There is nothing to score.
    """
    windows = load_evaluation(inputs["data"])
    targets = scored_targets(windows)
    source = load_checkpoint(inputs["source"]).folder
    baseline = StreamedDecoder(source, SafetensorsReader(source), params.device)
    kept = units_kept(inputs, params.keep, baseline.family, baseline.num_blocks)
    quantized = frozenset(
        linear
        for unit, linears in units_of(baseline.family, baseline.num_blocks).items()
        if unit not in kept
        for linear in linears
    )
    kind = GridKind(params.bits, params.symmetric)
    reader = QuantizedReader(
        source,
        quantized,
        lambda linear, weight: quantize_rtn(
            weight.float(),
            kind=kind,
            group_size=params.group_size if params.group_size > 0 else weight.shape[1],
        ),
    )
    rounded = StreamedDecoder(source, reader, params.device)
    batches = make_batches(windows, params.batch_tokens)
    samples = score_against(
        baseline,
        stored_hidden(inputs["baseline"], (targets.size, baseline.hidden_size)),
        rounded,
        hidden_to_disk(rounded, batches, reporter.progress_folder, reporter, "Running the yardstick"),
        targets,
        scored_documents(windows),
        QuantizationError,
        reporter,
    )
    slices = [document.slice for document in load_documents(inputs["data"])]
    save_measurement(output, summarize(samples, slices, runtime_info(rounded, params.batch_tokens)), samples)
