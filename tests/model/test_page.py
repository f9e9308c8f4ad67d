"""docs/models.md lists what the code lists."""

import re
from pathlib import Path

from quantflow.model.families import FAMILIES, FUSED_UNITS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
LISTED = PAGE.partition("## Listed")[2].partition("\n## ")[0]
ROWS = {
    cells[0].strip(" `"): [cell.strip() for cell in cells[1:]]
    for cells in (row.strip("|").split("|") for row in re.findall(r"(?m)^\| `.*\|$", LISTED)[1:])
}


def test_the_table_has_every_family_and_no_other() -> None:
    assert list(ROWS) == list(FAMILIES)


def test_the_table_says_before_which_units_scales_are_folded() -> None:
    for model_type, (_, _, scaled) in ROWS.items():
        units = [unit for unit in FAMILIES[model_type].units if unit in scaled.split(", ")]
        assert units == scaled.split(", ")
        assert {fold.unit for fold in FAMILIES[model_type].folds} == set(units)


def test_the_table_says_what_is_fused_in_the_checkpoint() -> None:
    for model_type, (_, fused, _) in ROWS.items():
        assert (FAMILIES[model_type].units == FUSED_UNITS) is bool(fused)
        for linear in filter(None, fused.split(", ")):
            assert any(name.endswith(f".{linear}") for name in FAMILIES[model_type].linears)


def test_events_on_the_page_are_events_of_the_code() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "quantflow").glob("*/*.py"))
    events = re.findall(r"event `([a-z-]+)`", PAGE)
    assert len(events) == 2
    assert all(f'"{event}"' in code for event in events)


def test_the_readme_leads_here() -> None:
    assert "docs/models.md" in (ROOT / "README.md").read_text(encoding="utf-8")
