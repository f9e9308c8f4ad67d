"""The settle stage: exact scores of the units whose place decides what is chosen, all others as estimated.

It is a stage of its own so that what no policy changes, every unit's estimate, is not made again for another.
"""

from collections.abc import Mapping
from pathlib import Path

from quantflow.data.windows import CALIBRATION_FILE, load_windows
from quantflow.model.config import load_config
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.units import FORCE_KEY, kept_of_all, named_units
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.part import PartReporter
from quantflow.sensitivity.artifact_size import tensor_bytes
from quantflow.sensitivity.assign import nothing_spared, total_bytes
from quantflow.sensitivity.boundaries import Boundaries
from quantflow.sensitivity.choice import choice_by
from quantflow.sensitivity.controls import correlations, report_settling
from quantflow.sensitivity.ladder import fixed, ladders
from quantflow.sensitivity.making import GRAPH_DTYPE, shared_units
from quantflow.sensitivity.measured import NOTHING, Measured
from quantflow.sensitivity.methods import Ground, Scored, auto
from quantflow.sensitivity.params import ChoiceParams, SettleParams
from quantflow.sensitivity.record import ScanRecord, UnitScore, load_scan, save_scan
from quantflow.sensitivity.scores import Found
from quantflow.sensitivity.settle import Choose
from quantflow.sensitivity.spent import ForwardParts
from quantflow.sensitivity.stored import stored_codes
from quantflow.sensitivity.text import scan_text
from quantflow.source.checkpoint import load_checkpoint

AGAIN = "forward for exact scores"
"""A step of the cost: the states that swapped units' runs restart from are not kept with the estimates."""


def run(params: SettleParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Settle the estimates; write scan.json, of method `auto`.

    Nothing is run where no estimate is in doubt.

    Args:
        params: What was scanned, and what the scores are for.
        inputs: Finished outputs of `source`, `data`, `codes` and `scan`; of `base`, for a graph.
        output: Where to write.
        reporter: Receives progress and events.

    Raises:
        RecipeError: A pattern means no unit.
        SourceError: The lossless model overflows on the text.
        QuantizationError: With a unit swapped, the model overflows; or a score is no finite number.
    """
    estimated = load_scan(inputs["scan"])
    checkpoint = load_checkpoint(inputs["source"])
    decoder = StreamedDecoder(checkpoint.folder, SafetensorsReader(checkpoint.folder), params.scan.device)
    windows = load_windows(inputs["data"] / CALIBRATION_FILE)
    text = scan_text(windows, params.scan.tokens, params.scan.batch_tokens)
    assert text is not None, "the scan has refused too little text"
    part = PartReporter(reporter, "calibration")
    codes = stored_codes(params.scan, inputs["codes"], decoder.family)
    ground = Ground(Boundaries(decoder, text, part), codes, part)
    choices = [_choice(choice, estimated, ground, inputs, checkpoint.half_dtype) for choice in params.choices]
    scored = auto(ground, _estimates(estimated, ground), choices)
    nothing = scored.measured.sums.get(NOTHING)
    nothing_kl = 0.0 if nothing is None else text.mean(abs(nothing))
    record = _record(estimated, scored, nothing_kl)
    report_settling(record, nothing_kl, reporter)
    save_scan(output, record)


def _choice(
    choice: ChoiceParams, scan: ScanRecord, ground: Ground, inputs: Mapping[str, Path], half: str
) -> Choose:
    """What an artifact chooses by the scores."""
    family, blocks = ground.boundaries.decoder.family, ground.boundaries.decoder.num_blocks
    kept = kept_of_all(choice.keep, family, blocks)
    forced = named_units(choice.force, family, blocks, FORCE_KEY)
    source, shared = half, frozenset[str]()
    if choice.graph:
        source, shared = GRAPH_DTYPE, shared_units(load_config(ground.boundaries.decoder.folder))
    free = [unit for unit in ladders(scan, choice.precisions, source, shared) if unit.unit not in kept]
    other = 0
    if choice.sized is not None:
        other = tensor_bytes(choice.sized, inputs, kept) - total_bytes(free, nothing_spared(free))
    return choice_by(choice, fixed(free, quantized=forced), other)


def _estimates(scan: ScanRecord, ground: Ground) -> Scored:
    """A scan's scores as `auto` takes them."""
    found = {
        (score.unit, score.precision): Found(
            score.kl,
            None if score.ci_low is None or score.ci_high is None else (score.ci_low, score.ci_high),
            score.kl_by_half,
            score.method,
        )
        for score in scan.scores
    }
    again = 1 - ForwardParts.of(ground.boundaries.decoder).head
    return Scored(found, Measured({}, {**scan.cost_by_step, AGAIN: again}))


def _record(scan: ScanRecord, scored: Scored, nothing_kl: float) -> ScanRecord:
    cost = dict(scored.measured.forwards)
    if NOTHING not in scored.measured.sums:  # no unit was swapped, and so nothing run
        del cost[AGAIN]
    scores = tuple(_settled(score, scored.found[score.unit, score.precision]) for score in scan.scores)
    halves, selection = correlations(scores)
    controls = scan.controls.model_copy(
        update={
            "nothing_swapped_kl": max(scan.controls.nothing_swapped_kl, nothing_kl),
            "halves_rank_correlation": halves,
            "selection_rank_correlation": selection,
        }
    )
    return scan.model_copy(
        update={
            "method": "auto",
            "scores": scores,
            "controls": controls,
            "forwards": sum(cost.values()),
            "cost_by_step": cost,
            "settled": scored.settled,
        }
    )


def _settled(score: UnitScore, found: Found) -> UnitScore:
    low, high = found.interval or (None, None)
    return score.model_copy(
        update={
            "kl": found.kl,
            "ci_low": low,
            "ci_high": high,
            "kl_by_half": found.halves,
            "method": found.method,
        }
    )
