"""docs/sources.md names what there is: every event, every variable, and no message that nobody writes."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
CODE = "\n".join(
    path.read_text(encoding="utf-8")
    for part in ("source", "inspection", "model")
    for path in sorted((ROOT / "quantflow" / part).glob("*.py"))
)
EXPORT = (ROOT / "quantflow" / "formats" / "export.py").read_text(encoding="utf-8")
RAISED = re.compile(r"""(?:reporter\.event|Suspicion)\(\s*f?"([a-z-]+?)-?(?:\{[^}]*\})?",""")


def test_every_event_of_a_source_and_of_an_export_is_on_the_page() -> None:
    codes = set(RAISED.findall(CODE + EXPORT))
    assert len(codes) > 20
    suspicions = set(re.findall(r'Suspicion\(\s*"([a-z-]+)"', CODE))
    missing = {code for code in codes - suspicions if code not in PAGE}
    assert {code for code in missing if not code.startswith("gguf-tokenizer")} == set()


def test_every_event_on_the_page_is_raised() -> None:
    table = PAGE.partition("## Events")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z]+-[a-z-]+)`", "\n".join(re.findall(r"(?m)^\| (`.*?) \|", table))))
    assert len(named) > 15
    assert {code for code in named if code not in CODE} == set()


def test_every_variable_on_the_page_is_one_that_somebody_reads() -> None:
    table = PAGE.partition("## The hub")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([A-Z_]{5,})(?:=1)?`", table))
    read_by_the_hub_s_client = {"HF_TOKEN", "HF_HOME", "HF_HUB_CACHE", "HTTP_PROXY", "NO_PROXY"}
    assert {name for name in named if name not in CODE} <= read_by_the_hub_s_client
    assert "REQUESTS_CA_BUNDLE" in named


def test_messages_on_the_page_are_messages_of_the_code() -> None:
    words = " ".join(re.sub(r'"\s*f?"', "", CODE).split())
    messages = [row.split("|")[1] for row in PAGE.splitlines() if row.startswith("| ") and "`" not in row[:3]]
    phrases = [part.strip() for message in messages for part in re.split("…|·|, such as", message)]
    long = [phrase for phrase in phrases if len(phrase.split()) > 4]
    assert len(long) > 20
    assert [phrase for phrase in long if phrase not in words] == []
