"""What became of several recipes run one after another, and the page that sums it up."""

import os
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

from jinja2 import Template
from pydantic import BaseModel, ConfigDict

from quantflow.gate.verdict import Verdict
from quantflow.report.measures import show_change, show_metric
from quantflow.report.model import Report
from quantflow.report.page import page_environment
from quantflow.report.wording import Language, load_wording
from quantflow.report.write import HTML_FILE, write_files

SUMMARIES = "summaries"
SUMMARY_FILE = "summary.json"
PAGE = "index.html"


class RecipeOutcome(BaseModel):
    """What became of one recipe.

    Attributes:
        recipe: The file, as given.
        run_id: Its run; None where there is no report.
        verdict: The run's verdict; `error` where there is none.
        exit_code: What `quantflow run` of this recipe alone would have ended with.
        reason: Why, in plain words.
        seconds: Wall time.
        report: Folder of its report, absolute; None where there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: str
    run_id: str | None = None
    verdict: Verdict
    exit_code: int
    reason: str
    seconds: float
    report: str | None = None


class Batch(BaseModel):
    """What became of all.

    Attributes:
        batch_id: Name of the batch, and of its summary's folder.
        started: ISO 8601, UTC.
        exit_code: The worst of the recipes'.
        outcomes: One for each recipe, in the order given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_id: str
    started: str
    exit_code: int
    outcomes: tuple[RecipeOutcome, ...]


def write_batch(batch: Batch, reports: Mapping[str, Report], folder: Path) -> Path:
    """Write `reports/summaries/<batch id>/index.html` and summary.json; returns the page.

    Args:
        batch: What became of each recipe.
        reports: Run id → its report.
        folder: Where `reports/` lies.

    Raises:
        StoreError: It cannot be written.
    """
    place = folder / "reports" / SUMMARIES / batch.batch_id
    links = {
        outcome.run_id: os.path.relpath(Path(outcome.report) / HTML_FILE, place)
        for outcome in batch.outcomes
        if outcome.report is not None
    }
    page = _template(_language(reports)).render(batch=batch, reports=reports, links=links)
    write_files({SUMMARY_FILE: batch.model_dump_json(indent=2) + "\n", PAGE: page}, place)
    return place / PAGE


def _language(reports: Mapping[str, Report]) -> Language:
    """What all reports are written in; English where they differ or there are none."""
    languages = {report.language for report in reports.values()}
    return languages.pop() if len(languages) == 1 else "en"


@cache
def _template(language: Language) -> Template:
    worded = partial(show_metric, words=load_wording(language))
    return page_environment(language).get_template(
        "batch.html.j2", globals={"show_change": show_change, "show_metric": worded}
    )
