"""Verdicts, how several become one, and the exit code each stands for."""

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What the gate says of a criterion, an artifact or a run."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


_WORST_FIRST = (Verdict.ERROR, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS)
_EXIT_CODES = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.ERROR: 2, Verdict.INCONCLUSIVE: 3}


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of several verdicts: error > fail > inconclusive > pass; of none, inconclusive."""
    given = frozenset(verdicts)
    return next((verdict for verdict in _WORST_FIRST if verdict in given), Verdict.INCONCLUSIVE)


def exit_code(verdict: Verdict) -> int:
    """The process exit code of a run with this verdict: 0 pass, 1 fail, 2 error, 3 inconclusive."""
    return _EXIT_CODES[verdict]
