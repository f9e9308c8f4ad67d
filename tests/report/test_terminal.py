import io

import pytest
from rich.console import Console

from quantflow.gate.criteria import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.report.model import Report
from quantflow.report.terminal import criteria_view


def report(verdict: Verdict) -> Report:
    criterion = CriterionResult(
        artifact="int4-awq",
        name="perplexity",
        metric="perplexity",
        baseline=58.41,
        value=63.68,
        delta=0.0903,
        ci_low=0.0826,
        ci_high=0.098,
        margin=0.05,
        n=16_159,
        n_clusters=48,
        verdict=verdict,
        reason="why",
    )
    return Report(
        run_id="1",
        recipe="r",
        title="r",
        verdict=verdict,
        exit_code=1,
        reason="why",
        criteria=(criterion,),
        artifacts=(),
        baseline=None,
        data=None,
        events=(),
        provenance={},
    )


@pytest.mark.parametrize("width", [40, 80, 100, 120, 200])
def test_no_figure_and_no_verdict_is_cut_at_any_width(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    console.print(criteria_view(report(Verdict.INCONCLUSIVE), width))
    assert isinstance(console.file, io.StringIO)
    shown = " ".join(console.file.getvalue().split())
    for part in (
        "inconclusive",
        "int4-awq",
        "58.41",
        "63.68",
        "+9.03 %",
        "+8.26 %",
        "+9.80 %",
        "+5.00 %",
        "48",
    ):
        assert part in shown
    assert "…" not in shown.replace("+8.26 % … +9.80 %", "")
