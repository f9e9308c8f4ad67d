"""Both languages say the same things, in the same places, and say nothing that no page needs."""

import re
import string
from pathlib import Path

import pytest

import quantflow.report
from quantflow.gate.verdict import Verdict
from quantflow.report.html import render_html
from quantflow.report.wording import LANGUAGES, load_wording
from tests.report.samples import report

EN, ZH = (load_wording(language) for language in LANGUAGES)
REPORT = Path(quantflow.report.__file__).parent


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_both_catalogues_have_the_same_keys() -> None:
    assert ZH.texts.keys() == EN.texts.keys()


@pytest.mark.parametrize("key", EN.texts)
def test_both_languages_fill_in_the_same_values(key: str) -> None:
    assert places(ZH.texts[key]) == places(EN.texts[key])


def test_every_chinese_text_is_chinese() -> None:
    same = {"page.lang", "criteria.sample", "slices.kl", "llama.error"}
    untranslated = [
        key
        for key, text in ZH.texts.items()
        if key not in same and not re.search("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef()]", text)
    ]
    assert untranslated == []


def test_no_text_is_there_that_nothing_says() -> None:
    code = "".join(path.read_text() for path in REPORT.rglob("*") if path.suffix in (".py", ".j2"))
    named = set(re.findall(r'"([a-z_]+\.[a-z_.0-9]+)', code))
    # Keys put together from a beginning and a name of the program's.
    beginnings = set(re.findall(r'"([a-z_]+\.[a-z_]*)(?:" ~|\{)', code)) | {"metric."}
    unsaid = [
        key
        for key in EN.texts
        if key not in named
        and key.rpartition(".")[0] not in named  # one and other
        and not any(key.startswith(beginning) for beginning in beginnings)
        and not key.endswith(".title")
    ]
    assert unsaid == []


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_chinese_page_has_the_figures_of_the_english_one(verdict: Verdict) -> None:
    shown = report(verdict, verdict)
    english, chinese = (
        re.findall(
            r"[+−]?\d[\d,]*\.?\d+", re.sub("<(style|script)>.*?</\\1>|<[^>]*>", " ", page, flags=re.DOTALL)
        )
        for page in (render_html(shown), render_html(shown.model_copy(update={"language": "zh"})))
    )
    assert {f for f in english if len(f) > 4} - {f for f in chinese if len(f) > 4} == set()
    assert 'lang="zh-Hans"' in render_html(shown.model_copy(update={"language": "zh"}))


def test_names_in_a_row_have_one_and_before_the_last() -> None:
    assert EN.joined(["a"]) == "a"
    assert EN.joined(["a", "b", "c"]) == "a, b and c"
    assert ZH.joined(["a", "b", "c"]) == "a、b和c"


def test_one_thing_is_not_several() -> None:
    assert EN.counted("sample.documents", 1, "1") == "1 document"
    assert EN.counted("sample.documents", 48, "48") == "48 documents"


def test_values_are_filled_in_as_they_are() -> None:
    assert EN("page.scrollable", what="{page} %s {0}") == "{page} %s {0}, scrollable"


def test_a_name_without_a_word_stands_for_itself() -> None:
    assert EN.named("metric", "gsm8k_exact_match") == "gsm8k_exact_match"
