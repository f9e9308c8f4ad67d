"""What became of the business text, on the terminal: a short table below the run."""

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from quantflow.data.documents import Accounting, SplitAccounting
from quantflow.report.figures import count
from quantflow.report.lines import reading_line
from quantflow.report.model import DataReport
from quantflow.report.terminal import WIDEST
from quantflow.report.wording import load_wording

_ENGLISH = load_wording("en")
_COLUMNS = (
    "windows",
    "documents",
    "used",
    "in part",
    "too short",
    "copies",
    "near copies",
    "tokens",
    "tokens used",
)


def data_view(accounting: Accounting, width: int) -> RenderableType:
    """Documents and tokens of each split, and what was read beside them.

    Args:
        accounting: Of a run.
        width: Columns of the terminal; where the table does not fit, each split is a line.
    """
    table = Table(box=box.SIMPLE_HEAD, title=None)
    table.add_column("data", no_wrap=True)
    for heading in _COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, split in accounting.splits.items():
        table.add_row(name, *_figures(split))
    if Console(width=WIDEST).measure(table).maximum <= width:
        return Group(table, f" {reading_line(accounting, load_wording('en'))}", "")
    lines = [f"{name}: {_in_words(split)}" for name, split in accounting.splits.items()]
    return Group(*lines, reading_line(accounting, _ENGLISH), "")


def drift_view(data: DataReport) -> RenderableType | None:
    """How production text differs from calibration text; None where it does not or is not known."""
    if data.drift is None or not data.drift.tokens.is_found:
        return None
    return Text(" ".join(data.drift.sentences) + "\n", style="yellow")


def _in_words(split: SplitAccounting) -> str:
    return ", ".join(f"{figure} {what}" for what, figure in zip(_COLUMNS, _figures(split), strict=True))


def _figures(split: SplitAccounting) -> tuple[str, ...]:
    total = split.total
    return tuple(
        count(number)
        for number in (
            split.windows,
            total.documents_read,
            total.documents_used,
            total.documents_truncated,
            total.documents_too_short,
            total.documents_duplicate,
            total.documents_near_duplicate,
            total.tokens_read,
            total.tokens_used,
        )
    )
