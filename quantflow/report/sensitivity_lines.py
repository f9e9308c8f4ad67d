"""What was spared of an artifact, and what the scan behind it was, in a few sentences."""

from quantflow.report.figures import count, nats, percent
from quantflow.report.wording import Wording
from quantflow.sensitivity.assignment import AssignmentRecord
from quantflow.sensitivity.record import ScanRecord


def assignment_line(assignment: AssignmentRecord, words: Wording) -> str:
    """How many units were spared by which policy, and what the whole measured."""
    mix, number = assignment.mix, len(assignment.spared)
    kl, plain = nats(mix.kl), nats(assignment.plain.kl)
    if assignment.remedied:
        sentences = [words("sensitivity.remedied", kl=kl, plain=plain)]
    else:
        sentences = [
            words.counted(
                "sensitivity.assigned",
                number,
                count(number),
                all=count(len(assignment.decisions)),
                share=percent(mix.spared),
                policy=words(f"sensitivity.policy_{assignment.policy}"),
                kl=kl,
                plain=plain,
            )
        ]
    if mix.additivity_ratio is not None:
        sentences.append(words("sensitivity.additivity", ratio=f"{mix.additivity_ratio:.3g}"))
    if assignment.rolled_back is not None:
        back = assignment.rolled_back
        sentences.append(words("sensitivity.rolled_back", count=count(back.units), kl=nats(back.kl)))
    return " ".join(sentences)


def scan_line(scan: ScanRecord, words: Wording) -> str:
    """On how much the scan ran, and what its controls came to."""
    nothing = nats(scan.controls.nothing_swapped_kl)
    forwards = f"{scan.forwards:.3g}"
    sentences = [words("sensitivity.scanned", tokens=count(scan.tokens), forwards=forwards, nothing=nothing)]
    sentences += [
        words("sensitivity.halves", precision=precision, correlation=f"{correlation:.3f}")
        for precision, correlation in scan.controls.halves_rank_correlation.items()
        if correlation is not None
    ]
    return " ".join(sentences)
