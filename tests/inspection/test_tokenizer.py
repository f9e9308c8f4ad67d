"""A tokenizer is tried on text and held to what the model's files declare."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from quantflow.errors import SourceError
from quantflow.inspection.texts import SPELLING
from quantflow.inspection.tokenizer import LARGE_VOCABULARY, TokenizerFacts, check_tokenizer, tell_bos
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY


@pytest.fixture
def folder(tiny_llama: Path, tmp_path: Path) -> Path:
    """The tiny model's files without its weights."""
    return Path(
        shutil.copytree(tiny_llama, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    )


def change(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | changes))


def codes(facts: TokenizerFacts) -> list[str]:
    return [suspicion.code for suspicion in facts.suspicions]


def save(folder: Path, tokenizer: Tokenizer, **special: str) -> None:
    for path in folder.glob("*token*"):
        path.unlink()
    wrap: Any = PreTrainedTokenizerFast
    wrap(tokenizer_object=tokenizer, **special).save_pretrained(folder)


def one_id_per_character() -> Tokenizer:
    """What Gemma's tokenizer becomes on its way through a GGUF file."""
    characters = sorted({c for text in SPELLING.values() for c in text})
    tokenizer = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(characters)}, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def words() -> Tokenizer:
    """Knows three words and makes everything else one unknown token."""
    vocabulary = {"[UNK]": 0, "the": 1, "museum": 2, "opens": 3}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(", ", "isolated")
    return tokenizer


def test_a_sound_tokenizer_says_nothing(folder: Path, reporter: RecordingReporter) -> None:
    facts = check_tokenizer(folder, VOCABULARY, reporter)
    assert (codes(facts), reporter.events) == ([], [])
    assert facts.characters_per_token["letter"] == 2.04


def test_one_id_per_character_is_told_with_its_usual_cause(folder: Path, reporter: RecordingReporter) -> None:
    save(folder, one_id_per_character())
    (suspicion,) = check_tokenizer(folder, 256_000, reporter).suspicions
    assert suspicion.code == "tokenizer-splits-too-finely"
    assert "1.0 characters a token of English, though the model has 256000 tokens" in suspicion.message
    assert "GGUF" in suspicion.hint


def test_a_small_vocabulary_may_be_one_of_bytes(folder: Path, reporter: RecordingReporter) -> None:
    save(folder, one_id_per_character())
    assert codes(check_tokenizer(folder, LARGE_VOCABULARY - 1, reporter)) == []


def test_words_that_are_mostly_unknown_are_told(folder: Path, reporter: RecordingReporter) -> None:
    save(folder, words(), unk_token="[UNK]")
    found = codes(check_tokenizer(folder, VOCABULARY, reporter))
    assert found == ["tokenizer-splits-too-coarsely", "tokenizer-changes-text"]


def test_english_that_does_not_come_back_is_shown_as_it_comes_out(
    folder: Path, reporter: RecordingReporter
) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = normalizers.Lowercase()
    save(folder, tokenizer)
    (suspicion,) = check_tokenizer(folder, VOCABULARY, reporter).suspicions
    assert suspicion.code == "tokenizer-changes-text"
    assert "'the museum opens at nine" in suspicion.message


def test_other_text_that_does_not_come_back_is_an_event_that_names_the_kinds(
    folder: Path, reporter: RecordingReporter
) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = normalizers.Replace("👍", "+1")
    save(folder, tokenizer, eos_token="<|im_end|>")
    assert codes(check_tokenizer(folder, VOCABULARY, reporter)) == []
    (event,) = reporter.events
    assert event.code == "tokenizer-loses-text"
    assert list(event.detail) == ["emoji"]


def test_ids_that_the_model_has_no_embedding_for_are_refused(
    folder: Path, reporter: RecordingReporter
) -> None:
    with pytest.raises(SourceError, match=r"makes the token id \d+, and the model has 300 embeddings"):
        check_tokenizer(folder, 300, reporter)


def test_a_tokenizer_that_knows_more_than_the_model_is_told(
    folder: Path, reporter: RecordingReporter
) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    added = dict(content["added_tokens"][0], id=VOCABULARY, content="<|late|>")
    content["added_tokens"].append(added)
    path.write_text(json.dumps(content))
    check_tokenizer(folder, VOCABULARY, reporter)
    assert reporter.codes() == ["tokenizer-larger-than-model"]


@pytest.mark.parametrize(
    ("file", "changes", "role"),
    [
        ("config.json", {"eos_token_id": 7}, "EOS"),
        ("config.json", {"eos_token_id": [7, 8]}, "EOS"),
        ("generation_config.json", {"eos_token_id": 7}, "EOS"),
        ("config.json", {"pad_token_id": 7}, "PAD"),
        ("tokenizer_config.json", {"eos_token": "<|im_start|>"}, "EOS"),
        ("tokenizer_config.json", {"eos_token": None}, "EOS"),
    ],
)
def test_files_that_disagree_on_a_special_token_are_told(
    file: str, changes: dict[str, Any], role: str, folder: Path, reporter: RecordingReporter
) -> None:
    change(folder / file, **changes)
    check_tokenizer(folder, VOCABULARY, reporter)
    (event,) = reporter.events
    assert event.code == "special-tokens-disagree"
    assert f"on the {role} token" in event.message


@pytest.mark.parametrize("ids", [2, [2, 0], [7, 2]])
def test_one_of_several_end_tokens_is_agreement(ids: Any, folder: Path, reporter: RecordingReporter) -> None:
    change(folder / "config.json", eos_token_id=ids)
    check_tokenizer(folder, VOCABULARY, reporter)
    assert reporter.events == []


class Blind:
    """A tokenizer of a class that puts BOS before text, or does not, whatever its config says."""

    bos_token_id = 1

    def __init__(self, adds: bool) -> None:
        self.adds = adds

    def __call__(self, text: str) -> Any:
        return type("Encoded", (), {"input_ids": [1, 5, 6] if self.adds else [5, 6]})()


@pytest.mark.parametrize("declared", [True, False, None])
@pytest.mark.parametrize("adds", [True, False])
def test_bos_before_text_is_held_to_what_is_declared(
    declared: bool | None, adds: bool, reporter: RecordingReporter
) -> None:
    tell_bos(Blind(adds), {"add_bos_token": declared}, reporter)
    assert bool(reporter.events) is (declared is not None and declared is not adds)


def test_a_template_that_fails_and_one_with_marks_nobody_knows_are_told(
    folder: Path, reporter: RecordingReporter
) -> None:
    template = folder / "chat_template.jinja"
    template.write_text("{{ raise_exception('not for you') }}")
    check_tokenizer(folder, VOCABULARY, reporter)
    template.write_text("<|im_start|>{% for m in messages %}<|turn|>{{ m['content'] }}{% endfor %}")
    check_tokenizer(folder, VOCABULARY, reporter)
    assert reporter.codes() == ["chat-template-fails", "chat-template-marks-unknown"]
    assert list(reporter.events[1].detail["tokens"]) == ["<|turn|>"]  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["{}", "{", "[]", "\0"])
def test_a_tokenizer_that_cannot_be_loaded_is_the_source_s_fault(
    content: str, folder: Path, reporter: RecordingReporter
) -> None:
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(SourceError, match="tokenizer cannot be loaded"):
        check_tokenizer(folder, VOCABULARY, reporter)
