"""A model that guesses, or says no text, is not quantized for hours before anybody notices."""

from pathlib import Path

import pytest
import torch

from quantflow.errors import SourceError
from quantflow.inspection.record import NEAR_RANDOM_SHARE, near_random_loss
from quantflow.inspection.speech import is_text
from quantflow.inspection.texts import PROMPT_CHARACTERS, READING, prompts
from tests.inspection.conftest import Inspect
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config, tiny_tokenizer


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = random_model(tmp_path_factory.mktemp("untrained"), tiny_config(), dtype=torch.bfloat16)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def test_a_model_that_guesses_is_refused_with_its_figures_and_the_way_on(
    inspect: Inspect, untrained: Path
) -> None:
    with pytest.raises(SourceError, match="predicts no better than chance") as caught:
        inspect(untrained)
    assert "a vocabulary of 400" in caught.value.message
    assert "model.allow_suspect: true" in caught.value.hint


def test_where_the_recipe_allows_it_the_finding_is_an_event(
    inspect: Inspect, untrained: Path, reporter: RecordingReporter
) -> None:
    inspection = inspect(untrained, allow_suspect=True)
    assert "baseline-near-random" in reporter.codes()
    limit = 400**NEAR_RANDOM_SHARE
    assert all(perplexity >= limit for perplexity in inspection.perplexities.values())


def test_equal_models_give_equal_records(inspect: Inspect, tiny_llama: Path, tmp_path: Path) -> None:
    inspect(tiny_llama)
    first = (tmp_path / "inspected" / "inspect.json").read_bytes()
    for made in ("inspected", "source"):
        (tmp_path / made).rename(tmp_path / f"{made}-before")
    inspect(tiny_llama)
    assert (tmp_path / "inspected" / "inspect.json").read_bytes() == first


def test_a_small_model_in_memory_says_what_a_streamed_one_says(
    inspect: Inspect, tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident = inspect(tiny_llama)
    for made in ("inspected", "source"):
        (tmp_path / made).rename(tmp_path / f"{made}-before")
    monkeypatch.setattr("quantflow.inspection.speech.RESIDENT_BYTES", 0)
    assert inspect(tiny_llama) == resident


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        ("Thank you for", True),
        ("wait three minutes", True),
        ("今天天气", True),
        ("<|im_end|>", False),
        ("<|im_end|><|endoftext|>", False),
        ("!!!!!!!!", False),
        ("........", False),
        ("?!", False),
        ("", False),
    ],
)
def test_text_is_neither_marks_alone_nor_one_token_over_and_over(text: str, sound: bool) -> None:
    tokenizer = tiny_tokenizer()
    assert is_text(tokenizer(text).input_ids, tokenizer) is sound


def test_bytes_that_are_no_characters_are_no_text() -> None:
    tokenizer = tiny_tokenizer()
    broken = tokenizer("今").input_ids[:1]
    assert not is_text([*broken, *broken[:1]], tokenizer)


def test_near_random_is_close_to_the_loss_of_a_guess() -> None:
    assert near_random_loss(400) == pytest.approx(5.392, abs=1e-3)
    assert near_random_loss(128_256) == pytest.approx(10.586, abs=1e-3)


def test_prompts_are_beginnings_of_the_texts() -> None:
    assert PROMPT_CHARACTERS.keys() == READING.keys()
    for prompt, text in zip(prompts(), READING.values(), strict=True):
        assert prompt and text.startswith(prompt)
        assert prompt == prompt.strip()
