"""What shows that a scan measured what it says, and what is said where it does not."""

from collections.abc import Sequence

from quantflow.pipeline.events import Reporter
from quantflow.sensitivity.measured import NOTHING
from quantflow.sensitivity.methods import Scored
from quantflow.sensitivity.record import ScanControls, ScanRecord, UnitScore
from quantflow.sensitivity.scores import halves_correlation, rank_correlation, selection_correlation
from quantflow.sensitivity.text import ScanText

LARGEST_NOTHING = 1e-6
"""Nats per token that a stream may be away from the lossless model in which nothing was swapped: float32's
rounding, where a device adds up in another order."""

LEAST_CORRELATION = 0.8
"""Rank correlation of two texts below which the order of units says more of the text than of the model."""


def found_controls(scored: Scored, scores: Sequence[UnitScore], text: ScanText) -> ScanControls:
    """The controls of a scan.

    Args:
        scored: What its method found.
        scores: The scores that came of it.
        text: The text that was scanned.
    """
    nothing = scored.measured.sums.get(NOTHING)
    halves, selection = correlations(scores)
    return ScanControls(
        nothing_swapped_kl=0.0 if nothing is None else text.mean(abs(nothing)),
        no_op_swaps=tuple(sorted(f"{unit} @ {precision}" for unit, precision in scored.measured.no_ops)),
        halves_rank_correlation=halves,
        selection_rank_correlation=selection,
        default_rank_correlation={
            p: rank_correlation([s.kl for s in own], [scored.default[s.unit, p].kl for s in own])
            for p, own in _by_precision(scores).items()
            if scored.default
        },
    )


def correlations(
    scores: Sequence[UnitScore],
) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Rank correlation by precision: of both halves of the text, and of calibration with selection text."""
    by_precision = _by_precision(scores)
    return (
        {p: halves_correlation(own) for p, own in by_precision.items()},
        {p: selection_correlation(own) for p, own in by_precision.items()},
    )


def _by_precision(scores: Sequence[UnitScore]) -> dict[str, list[UnitScore]]:
    found: dict[str, list[UnitScore]] = {}
    for score in scores:
        found.setdefault(score.precision, []).append(score)
    return found


def report_controls(record: ScanRecord, reporter: Reporter) -> None:
    """Raise an event for whatever keeps a reader from taking the scores as they are."""
    controls = record.controls
    _report_nothing(controls.nothing_swapped_kl, reporter)
    if controls.no_op_swaps:
        reporter.event(
            "swaps-without-effect",
            f"The codes of {len(controls.no_op_swaps)} units are exactly the weights of the source, which "
            "has been quantized on the same grid before: their scores of zero say nothing of another model.",
            swaps=list(controls.no_op_swaps),
        )
    for precision, correlation in controls.halves_rank_correlation.items():
        if correlation is not None and correlation < LEAST_CORRELATION:
            reporter.event(
                "scan-halves-disagree",
                f"The two halves of the scan's text order the units differently (rank correlation "
                f"{correlation:.2f} in {precision}): raise sensitivity.tokens.",
                precision=precision,
                correlation=correlation,
            )
    for precision, correlation in controls.selection_rank_correlation.items():
        if correlation is not None and correlation < LEAST_CORRELATION:
            reporter.event(
                "scan-not-confirmed",
                f"Selection text orders the units differently from calibration text (rank correlation "
                f"{correlation:.2f} in {precision}): what is chosen by the scan holds for the latter.",
                precision=precision,
                correlation=correlation,
            )
    if not record.selection_tokens:
        reporter.event(
            "scan-without-selection",
            "There are fewer than two selection windows to confirm the scan on: its scores are of "
            "calibration text alone.",
        )


def report_settling(record: ScanRecord, nothing_swapped_kl: float, reporter: Reporter) -> None:
    """Raise an event for what settling adds to what the scan has said.

    Args:
        record: The settled scores.
        nothing_swapped_kl: What was found where nothing was swapped beside the units, nats per token.
        reporter: Is told.
    """
    _report_nothing(nothing_swapped_kl, reporter)
    if record.settled is False:
        reporter.event(
            "scan-not-settled",
            f"After {record.forwards:.1f} forwards the choice of units still hangs on estimates, of units "
            "whose exact scores could turn it; `sensitivity.method: exact` scores every one exactly.",
            forwards=record.forwards,
        )


def _report_nothing(kl: float, reporter: Reporter) -> None:
    if kl > LARGEST_NOTHING:
        reporter.event(
            "scan-control-not-zero",
            f"Where nothing was swapped the scan found a KL of {kl:.2g} nats: this device does not repeat "
            "its arithmetic, and scores of that size mean nothing.",
            kl=kl,
        )
