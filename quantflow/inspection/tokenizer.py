"""Whether a tokenizer fits its model and gives back what it was given."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from transformers import AutoTokenizer

from quantflow.errors import SourceError
from quantflow.inspection.suspicion import Suspicion
from quantflow.inspection.texts import SPELLING
from quantflow.pipeline.events import Reporter

LARGE_VOCABULARY = 4096
"""From here on a vocabulary has whole words; smaller ones are of bytes or of pieces a little longer."""

MIN_CHARACTERS_PER_TOKEN: Mapping[str, float] = {"english": 2.0, "letter": 2.0, "chinese": 1.2}
"""What a large vocabulary reaches in the language that it was made for: sound ones have 3.5 to 5 in English
and 1.3 to 2 in Chinese. One that stays below in all has lost its merges: one id per character."""

MAX_CHARACTERS_PER_TOKEN = 12.0
"""Above this, words are taken for one token each, and most of them for the unknown one."""

MUST_COME_BACK = "english"
"""The kind of text that every vocabulary spells; others a small or an old one may not have."""

ROLES = ("bos", "eos", "pad")
_MARK = re.compile(r"<\|[A-Za-z0-9_]+\|>")
_CONVERSATION = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning."}]


@dataclass(frozen=True)
class TokenizerFacts:
    """What was found.

    Attributes:
        tokenizer: As transformers loads it.
        characters_per_token: Text → characters that a token stands for.
        suspicions: What looks broken.
    """

    tokenizer: Any
    characters_per_token: Mapping[str, float]
    suspicions: tuple[Suspicion, ...]


def check_tokenizer(folder: Path, vocab_size: int, reporter: Reporter) -> TokenizerFacts:
    """Try a checkpoint's tokenizer on built-in texts and compare its special tokens with what is declared.

    Args:
        folder: The checkpoint.
        vocab_size: Number of embeddings of the model.
        reporter: Receives an event for what differs without being broken.

    Raises:
        SourceError: It cannot be loaded, or makes ids that the model has no embedding for.
    """
    tokenizer = _load(folder)
    encoded = {kind: _encode(tokenizer, text, vocab_size, folder) for kind, text in SPELLING.items()}
    density = {kind: len(SPELLING[kind]) / max(len(ids), 1) for kind, ids in encoded.items()}
    suspicions = [*_density_suspicions(density, vocab_size), *_spelling(tokenizer, encoded, reporter)]
    _check_special_tokens(tokenizer, folder, vocab_size, reporter)
    _tell_template(tokenizer, reporter)
    return TokenizerFacts(tokenizer, {k: round(v, 2) for k, v in density.items()}, tuple(suspicions))


def _load(folder: Path) -> Any:
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each tokenizer class raises what it likes about its own files
        raise SourceError(
            f"the model's tokenizer cannot be loaded: {' '.join(str(error).split())}",
            where=str(folder),
            hint="The model's folder needs tokenizer.json and tokenizer_config.json beside its weights. A "
            "tokenizer that comes with code of its own is not run.",
        ) from error


def _encode(tokenizer: Any, text: str, vocab_size: int, folder: Path) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    outside = [i for i in [*ids, *tokenizer(text).input_ids] if not 0 <= i < vocab_size]
    if outside:
        raise SourceError(
            f"the tokenizer makes the token id {max(outside)}, and the model has {vocab_size} embeddings",
            where=str(folder),
            hint="Tokenizer and weights do not belong together.",
        )
    return ids


def _density_suspicions(density: Mapping[str, float], vocab_size: int) -> Iterator[Suspicion]:
    detail: dict[str, JsonValue] = {kind: round(value, 2) for kind, value in density.items()}
    if vocab_size >= LARGE_VOCABULARY and all(
        density[kind] < least for kind, least in MIN_CHARACTERS_PER_TOKEN.items()
    ):
        yield Suspicion(
            "tokenizer-splits-too-finely",
            f"The tokenizer makes {density['english']:.1f} characters a token of English, though the model "
            f"has {vocab_size} tokens to choose from: its merges were not found, and the model sees text as "
            "it never did in training.",
            "Tokenizers made from GGUF files can come out like that, one id per character: use the model's "
            "safetensors checkpoint, or put its own tokenizer.json into the folder.",
            detail,
        )
    if density["english"] > MAX_CHARACTERS_PER_TOKEN:
        yield Suspicion(
            "tokenizer-splits-too-coarsely",
            f"The tokenizer makes {density['english']:.1f} characters a token of English: it takes words for "
            "single tokens, most likely unknown ones.",
            "Its vocabulary is not the model's: get tokenizer.json from where the weights are from.",
            detail,
        )


def _spelling(tokenizer: Any, encoded: Mapping[str, list[int]], reporter: Reporter) -> Iterator[Suspicion]:
    changed: dict[str, JsonValue] = {}
    for kind, ids in encoded.items():
        # sentencepiece adds a space before the text, which is no change of it.
        decoded = str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
        if decoded not in (SPELLING[kind], " " + SPELLING[kind]):
            changed[kind] = decoded
    if MUST_COME_BACK in changed:
        yield Suspicion(
            "tokenizer-changes-text",
            "The tokenizer does not give plain English back: it comes out as "
            f"{_short(str(changed[MUST_COME_BACK]))!r}.",
            "Its vocabulary is damaged or not the model's: get tokenizer.json from where the weights are "
            "from.",
            changed,
        )
    elif changed:
        reporter.event(
            "tokenizer-loses-text",
            f"The tokenizer does not give back unchanged: {', '.join(changed)}. Such text in your data is "
            "seen by the model as what comes out.",
            **changed,
        )


def _check_special_tokens(tokenizer: Any, folder: Path, vocab_size: int, reporter: Reporter) -> None:
    declared = {name: _read(folder / name) for name in ("config.json", "generation_config.json")}
    for role in ROLES:
        own = getattr(tokenizer, f"{role}_token_id")
        if own is not None and not 0 <= own < vocab_size and role != "pad":
            raise SourceError(
                f"the tokenizer's {role.upper()} token has the id {own}, and the model has {vocab_size} "
                "embeddings",
                where=str(folder),
                hint="Tokenizer and weights do not belong together.",
            )
        ids = {name: _ids(content.get(f"{role}_token_id")) for name, content in declared.items()}
        said: dict[str, set[int]] = {name: found for name, found in ids.items() if found}
        # A padding token that only some files name is added where it is needed; the others decide what is
        # read.
        if own is not None or (said and role == "eos"):
            said["tokenizer"] = {own} if own is not None else set()
        if len(said) > 1 and not set.intersection(*said.values()):
            words = ", ".join(f"{name} {sorted(found) or 'none'}" for name, found in said.items())
            detail: dict[str, JsonValue] = {
                name.removesuffix(".json"): [*sorted(found)] for name, found in said.items()
            }
            reporter.event(
                "special-tokens-disagree",
                f"The model's files do not agree on the {role.upper()} token: {words}. The tokenizer's is "
                "used.",
                role=role,
                **detail,
            )
    if len(tokenizer) > vocab_size:
        reporter.event(
            "tokenizer-larger-than-model",
            f"The tokenizer knows {len(tokenizer)} tokens and the model {vocab_size}: text with the others, "
            "which were added later, is refused when it comes.",
            tokenizer=len(tokenizer),
            model=vocab_size,
        )
    tell_bos(tokenizer, _read(folder / "tokenizer_config.json"), reporter)


def tell_bos(tokenizer: Any, config: Mapping[str, Any], reporter: Reporter) -> None:
    """Raise an event where a tokenizer does not do with BOS what its tokenizer_config.json declares."""
    wanted = config.get("add_bos_token")
    if wanted is None or tokenizer.bos_token_id is None:
        return
    adds = tokenizer(SPELLING[MUST_COME_BACK]).input_ids[:1] == [tokenizer.bos_token_id]
    if adds is not bool(wanted):
        reporter.event(
            "tokenizer-adds-bos-otherwise",
            f"tokenizer_config.json says that the BOS token {'goes' if wanted else 'does not go'} before "
            f"every text, and the tokenizer {'puts' if adds else 'does not put'} it there.",
            declared=bool(wanted),
            adds=adds,
        )


def _tell_template(tokenizer: Any, reporter: Reporter) -> None:
    if tokenizer.chat_template is None:
        return
    try:
        text = str(tokenizer.apply_chat_template(_CONVERSATION, tokenize=False))
    except Exception as error:  # a template is a program of the model's author: it may fail in any way
        reporter.event(
            "chat-template-fails",
            f"The model's chat template cannot render a greeting and its answer: {_short(str(error))}",
        )
        return
    marks = sorted(set(_MARK.findall(text)))
    pieces = {m: len(tokenizer(m, add_special_tokens=False).input_ids) for m in marks}
    if unknown := {mark: count for mark, count in pieces.items() if count != 1}:
        reporter.event(
            "chat-template-marks-unknown",
            f"The chat template writes {', '.join(unknown)}, which the tokenizer does not know as one "
            "token: the model sees its letters.",
            tokens=dict(unknown),
        )


def _ids(value: Any) -> set[int]:
    values = value if isinstance(value, list) else [value]
    return {v for v in values if type(v) is int}


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # that is for the library that loads it to complain of
        return {}
    return content if isinstance(content, dict) else {}


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:80]}…"
