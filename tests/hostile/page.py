"""docs/troubleshooting.md, read back: which messages it explains."""

import re
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
_ROW = re.compile(
    r"^\| (?P<backticks>`+) ?(?P<message>.+?) ?(?P=backticks) \| (?P<meaning>.+?) \| (?P<remedy>.+?) \|$"
)


@cache
def sections() -> dict[str, list[str]]:
    """Heading → the messages of its table, `…` standing for what differs from case to case."""
    found: dict[str, list[str]] = {}
    for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, *lines = part.splitlines()
        rows = [_ROW.match(line) for line in lines if line.startswith("| `")]
        found[heading] = [row["message"] for row in rows if row is not None]
        assert None not in rows, f"a row of {heading} is not `message` | meaning | remedy"
    return found


def explained(section: str, complaint: str) -> list[str]:
    """The messages of a section that a complaint holds."""
    return [message for message in sections()[section] if _pattern(message).search(complaint)]


@cache
def _pattern(message: str) -> re.Pattern[str]:
    return re.compile(".+?".join(map(re.escape, message.split("…"))), re.DOTALL)
