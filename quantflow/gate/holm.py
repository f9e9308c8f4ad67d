"""How many of several failures may be called so at once."""

from collections.abc import Sequence

import numpy as np

from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict

FAMILY_LEVEL = 0.05
"""Probability that any failure is named that is none, over all criteria of an artifact together."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p of each hypothesis: rejecting those at a level or below keeps the family's error at it.

    Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6; whatever the dependence between them.
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = [0.0] * len(p_values)
    reached = 0.0
    for rank, at in enumerate(order):
        reached = max(reached, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = reached
    return adjusted


def corrected(criteria: Sequence[CriterionResult]) -> tuple[CriterionResult, ...]:
    """Criteria of one artifact with `holm_p`, over all that a p is known of."""
    tested = [at for at, criterion in enumerate(criteria) if criterion.p_fail is not None]
    adjusted = dict(zip(tested, holm([criteria[at].p_fail or 0.0 for at in tested]), strict=True))
    return tuple(
        criterion.model_copy(update={"holm_p": adjusted[at]}) if at in adjusted else criterion
        for at, criterion in enumerate(criteria)
    )


def several_failures(criteria: Sequence[CriterionResult]) -> str:
    """A sentence on how many failures stand together; empty where there are not several.

    One criterion outside its margin is evidence at 5 %; a list of several needs more, since of many criteria
    some look outside by chance.
    """
    failed = [c for c in criteria if c.verdict is Verdict.FAIL and c.holm_p is not None]
    if len(failed) < 2:
        return ""
    standing = [c for c in failed if c.holm_p is not None and c.holm_p <= FAMILY_LEVEL]
    tested = sum(c.holm_p is not None for c in criteria)
    which = "all" if len(standing) == len(failed) else str(len(standing)) if standing else "none"
    return (
        f"Of the {len(failed)} failures, {which} can be named together with an error of 5 % over all "
        f"{tested} criteria (Holm)."
    )
