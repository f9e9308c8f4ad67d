import io

import pytest
from rich.console import Console

from quantflow.data.documents import Accounting
from quantflow.report.lines import reading_line
from quantflow.report.terminal_data import data_view
from quantflow.report.wording import load_wording
from tests.report.samples import accounting

EN = load_wording("en")


def shown(counted: Accounting, width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(data_view(counted, width))
    return " ".join(file.getvalue().split())


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_every_split_says_where_its_documents_and_tokens_went_at_any_width(width: int) -> None:
    text = shown(accounting(), width)
    for part in ("calibration", "selection", "evaluation", "40,512", "16,384", "near copies", "too short"):
        assert part in text
    assert "…" not in text


def test_what_was_read_but_not_needed_is_told_with_an_estimate_of_its_tokens() -> None:
    counted = accounting()
    line = reading_line(counted, EN)
    assert line.startswith("2,540 documents read; 2,300 of them not needed for the windows asked for")
    tokens = counted.total.tokens_read * 3_250_000 / 350_000
    assert f"(about {round(tokens):,} tokens)" in line
    assert line.endswith("; 2 left out as undecodable.")


def test_a_run_that_needs_all_that_it_reads_says_no_more() -> None:
    counted = accounting()
    reading = counted.reading.model_copy(update={"documents_undrawn": 0, "documents_undecodable": 0})
    assert reading_line(counted.model_copy(update={"reading": reading}), EN) == "2,540 documents read."
