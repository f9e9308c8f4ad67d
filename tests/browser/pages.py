"""The pages that a browser is shown: the quickstart's kind, failing, undecided, very large, hostile."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from quantflow.gate.verdict import Verdict
from quantflow.report.model import Report
from quantflow.report.wording import LANGUAGES
from quantflow.report.write import HTML_FILE, write_report
from tests.report.changes import measured
from tests.report.samples import artifact, criterion, measurement, report
from tests.report.scans import assignment, scan
from tests.report.test_charts import points
from tests.report.test_divergence import CONTEXT, detailed
from tests.report.test_html import hostile_report
from tests.report.test_lossless import lossless
from tests.report.test_onnx import CENSUS

SLICES_OF_LARGE = 200
"""More parts than any team names, each with its criteria."""
BLOCKS_OF_LARGE = 200
"""More than any dense decoder has."""


def passing() -> Report:
    """A run with everything that a run can have."""
    own = artifact(
        Verdict.PASS,
        measurements=measured(),
        yardstick=measurement(2.6, kl=True),
        divergence=detailed(),
        contexts=(CONTEXT,),
        census=CENSUS,
        lossless=lossless("L3"),
        sensitivity=scan(30),
        assignment=assignment(30),
    )
    return report(Verdict.PASS, Verdict.PASS, artifacts=(own,), trend=points(0.062, 0.058, 0.064, 0.11, 0.06))


def failing() -> Report:
    return report(Verdict.PASS, Verdict.FAIL)


def undecided() -> Report:
    return report(Verdict.INCONCLUSIVE, Verdict.PASS)


def broken() -> Report:
    return report(Verdict.ERROR, Verdict.ERROR, baseline=None, data=None)


def large() -> Report:
    """A failing run of six artifacts of a model of 200 blocks, judged on 200 slices."""
    names = [f"int4-g{size}" for size in (32, 64, 128)] + ["int8", "int8-mix", "gptq-3bit"]
    slices = [f"region {number:03d}" for number in range(SLICES_OF_LARGE)]
    verdicts = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)
    measured = measurement(1.0, kl=True)
    parts = dict.fromkeys(slices, measured.slices["billing"])
    artifacts = tuple(
        artifact(
            Verdict.FAIL,
            name=name,
            sensitivity=scan(BLOCKS_OF_LARGE) if index == 0 else None,
            assignment=assignment(BLOCKS_OF_LARGE) if index == 0 else None,
            bytes=90_000_000 + 11_000_000 * index,
            measurements=measurement(0.5 + 0.3 * index, kl=True).model_copy(update={"slices": parts}),
        )
        for index, name in enumerate(names)
    )
    criteria = tuple(
        criterion("kl", verdicts[(index + place) % 3], artifact=name, slice=part)
        for index, name in enumerate(names[:2])
        for place, part in enumerate(("all", *slices))
    )
    return report(Verdict.FAIL, Verdict.FAIL, artifacts=artifacts, criteria=criteria)


PAGES: Mapping[str, Callable[[], Report]] = {
    "pass": passing,
    "fail": failing,
    "inconclusive": undecided,
    "error": broken,
    "large": large,
    "hostile": hostile_report,
}


def write_pages(folder: Path) -> dict[str, Path]:
    """Write every page in every language: name and language → file."""
    written: dict[str, Path] = {}
    for name, make in PAGES.items():
        for language in LANGUAGES:
            changes: dict[str, Any] = {"language": language}
            target = folder / f"{name}-{language}"
            write_report(make().model_copy(update=changes), target)
            written[target.name] = target / HTML_FILE
    return written
