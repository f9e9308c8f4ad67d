"""The scan stage: what quantizing each unit alone costs, in every precision that there are codes of."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from quantflow.data.windows import CALIBRATION_FILE, SELECTION_FILE, load_windows
from quantflow.errors import DataError
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.head import head_tensor
from quantflow.model.units import HEAD, units_of
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.part import PartReporter
from quantflow.sensitivity.boundaries import Boundaries
from quantflow.sensitivity.controls import found_controls, report_controls
from quantflow.sensitivity.methods import Ground, Scored, activation, exact, fisher
from quantflow.sensitivity.params import ScanParams
from quantflow.sensitivity.record import ScanRecord, ScoreMethod, save_scan
from quantflow.sensitivity.scores import UnitSize, unit_scores
from quantflow.sensitivity.sizes import TOO_FEW_HINT, TOO_FEW_WINDOWS
from quantflow.sensitivity.stored import StoredCodes, stored_codes
from quantflow.sensitivity.text import ScanText, scan_text
from quantflow.source.checkpoint import load_checkpoint

METHODS: Mapping[ScoreMethod, Callable[[Ground], Scored]] = {
    "exact": exact,
    "fisher": fisher,
    "activation": activation,
}


def run(params: ScanParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Score every unit on calibration text, and confirm the scores on selection text; write scan.json.

    Args:
        params: Precisions, method and tokens.
        inputs: Finished outputs of `source`, `data` and, as `codes`, `quantize`.
        output: Where to write.
        reporter: Receives progress and events.

    Raises:
        DataError: There is too little calibration text.
        SourceError: The lossless model overflows on it.
        QuantizationError: With a unit swapped, the model overflows.
    """
    checkpoint = load_checkpoint(inputs["source"])
    reader = SafetensorsReader(checkpoint.folder)
    decoder = StreamedDecoder(checkpoint.folder, reader, params.device)
    codes = stored_codes(params, inputs["codes"], decoder.family)
    text = scan_text(load_windows(inputs["data"] / CALIBRATION_FILE), params.tokens, params.batch_tokens)
    if text is None:
        raise DataError(
            TOO_FEW_WINDOWS,
            where="data.calibration.windows",
            hint=TOO_FEW_HINT,
        )
    scanned = _ground(decoder, codes, text, PartReporter(reporter, "calibration"))
    sizes = _sizes(decoder, reader)
    scored = METHODS[params.method](scanned)
    held_out = scan_text(load_windows(inputs["data"] / SELECTION_FILE), params.tokens, params.batch_tokens)
    confirmation = None
    if held_out is not None:
        other = _ground(decoder, codes, held_out, PartReporter(reporter, "selection"))
        confirmation = fisher(other, "Confirming on selection text")
    record = _record(params.method, scored, text, sizes, confirmation, held_out)
    report_controls(record, reporter)
    save_scan(output, record)


def _ground(
    decoder: StreamedDecoder, codes: Mapping[str, StoredCodes], text: ScanText, part: PartReporter
) -> Ground:
    boundaries = Boundaries(decoder, text, part)
    boundaries.fill(part, "Running the lossless model")
    return Ground(boundaries, codes, part)


def _record(
    method: ScoreMethod,
    scored: Scored,
    text: ScanText,
    sizes: Mapping[str, UnitSize],
    confirmation: Scored | None = None,
    held_out: ScanText | None = None,
) -> ScanRecord:
    scores = unit_scores(
        scored.found, sizes, scored.measured.sizes, {} if confirmation is None else confirmation.found
    )
    return ScanRecord(
        method=method,
        precisions=tuple(dict.fromkeys(score.precision for score in scores)),
        scores=scores,
        controls=found_controls(scored, scores, text),
        forwards=sum(scored.measured.forwards.values()),
        cost_by_step=scored.measured.forwards,
        tokens=text.tokens,
        selection_tokens=0 if held_out is None else held_out.tokens,
        selection_forwards=sum(confirmation.measured.forwards.values()) if confirmation else 0.0,
    )


def _sizes(decoder: StreamedDecoder, reader: SafetensorsReader) -> dict[str, UnitSize]:
    units = units_of(decoder.family, decoder.num_blocks)
    tensors = {unit: [f"{name}.weight" for name in linears] for unit, linears in units.items()}
    head = head_tensor(decoder)
    if head is not None:
        tensors[HEAD] = [head]
    specs = {unit: [reader.spec(name) for name in names] for unit, names in tensors.items()}
    return {
        unit: UnitSize(sum(math.prod(spec.shape) for spec in own), sum(spec.bytes for spec in own))
        for unit, own in specs.items()
    }
