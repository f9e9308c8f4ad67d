"""The criterion of what really runs: a unit that is stored as INT8 has to be computed so."""

from quantflow.formats.onnx.census_record import Census
from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict

MOST_NAMED = 5  # units in a reason; the report has them all


def census_criterion(artifact: str, census: Census, *, required: bool) -> CriterionResult:
    """Judge whether ONNX Runtime computes every unit as it is stored.

    Args:
        artifact: Name of the artifact.
        census: What runs.
        required: Whether a unit that fell back fails the artifact.
    """
    fallen, units = census.fallen_back, len(census.units)
    if not units:
        reason = "The census found no unit in the graph, so nothing says what really runs."
    elif fallen:
        named = ", ".join(fallen[:MOST_NAMED]) + (", …" if len(fallen) > MOST_NAMED else "")
        first = census.units[fallen[0]]
        reason = (
            f"{len(fallen)} of {units} units are not computed as they are stored ({first.expected}), the "
            f"first as {first.found}: {named}."
        )
    elif census.unknown:
        reason = (
            f"{len(census.unknown)} products multiply by weights that are stored in a way which is not known "
            f"here, such as {census.unknown[0]}: what they are computed in cannot be told. The other {units} "
            "are computed as they are stored."
        )
    else:
        reason = f"All {units} units are computed as they are stored by {census.provider}."
    return CriterionResult(
        artifact=artifact,
        name="census",
        metric="units_fallen_back",
        value=len(fallen),
        delta=len(fallen),
        margin=0,
        n=units,
        verdict=_verdict(census),
        required=required,
        reason=reason,
    )


def _verdict(census: Census) -> Verdict:
    if not census.units:
        return Verdict.ERROR
    if census.fallen_back:
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE if census.unknown else Verdict.PASS
