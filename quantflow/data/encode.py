"""Documents to tokens, with the model's own tokenizer and chat template."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer

from quantflow.data.jsonl import LINE_HINT, Mistake, Record
from quantflow.errors import DataError, SourceError

MAX_MISTAKES = 5
"""Mistakes shown at once: enough to see a pattern, few enough to read."""

_BATCH_CHARACTERS = 1_000_000
"""Text tokenized at once: enough to keep every core busy, a small part of the memory a model takes."""

ID_DIGITS = 16
"""Hexadecimal digits of the content's hash that stand for a missing id; 64 bits do not collide by chance."""

TEMPLATE_DATE = datetime(2024, 7, 26)
"""Told to a chat template that asks for today's date, so that equal data gives equal tokens on any day;
the date that Llama's own templates fall back on."""


@dataclass(frozen=True)
class TokenizedDocument:
    """A document as the model will read it.

    Attributes:
        id: As given, else the beginning of `digest`.
        slice: The part of the business it belongs to.
        digest: SHA-256 of its content before tokenization.
        tokens: Token ids, [tokens].
    """

    id: str
    slice: str
    digest: str
    tokens: NDArray[np.int32]


@dataclass(frozen=True)
class Rendered:
    """A document's text as the tokenizer gets it.

    Attributes:
        record: The document.
        text: Its text.
        templated: Whether a chat template made it, which writes its own special tokens.
    """

    record: Record
    text: str
    templated: bool


class Encoder:
    """The model's tokenizer and chat template.

    Args:
        folder: Checkpoint folder with the tokenizer's files.

    Attributes:
        eos: Token id that ends a document; None where the tokenizer has none.
        date_asked: Whether a chat template asked for today's date and was told `TEMPLATE_DATE`.

    Raises:
        SourceError: The tokenizer cannot be loaded.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # each tokenizer class raises what it likes about its own files
            raise SourceError(
                f"the model's tokenizer cannot be loaded: {error}",
                where=str(folder),
                hint="The model's folder needs tokenizer.json and tokenizer_config.json beside its weights.",
            ) from error
        self.eos: int | None = self._tokenizer.eos_token_id
        self.date_asked = False

    def render(self, record: Record) -> Rendered | Mistake:
        """The document's text: as it is, or messages in the chat template without a generation prompt.

        Raises:
            DataError: There are messages, but the tokenizer has no chat template.
        """
        if isinstance(record.content, str):
            return Rendered(record, record.content, templated=False)
        if self._tokenizer.chat_template is None:
            raise DataError(
                "this is a conversation, but the model's tokenizer has no chat template",
                where=record.where,
                hint="Use an instruct model, add chat_template.jinja to the model's folder, or give the data "
                "as `text`.",
            )
        try:
            text: str = self._tokenizer.apply_chat_template(
                record.content, tokenize=False, add_generation_prompt=False, strftime_now=self._strftime
            )
        except Exception as error:  # a template is a program of the model's author: it may fail in any way
            return Mistake(record.where, f"the model's chat template refuses the messages: {error}")
        return Rendered(record, text, templated=True)

    def tokenize(self, texts: list[str], *, special_tokens: bool) -> list[NDArray[np.int32]]:
        """Token ids of each text, [tokens] each, with the tokenizer's own special tokens if asked."""
        if not texts:
            return []
        encoded = self._tokenizer(
            texts,
            add_special_tokens=special_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return [np.asarray(ids, dtype=np.int32) for ids in encoded["input_ids"]]

    def _strftime(self, form: str) -> str:
        self.date_asked = True
        return TEMPLATE_DATE.strftime(form)


def tokenize_records(records: Iterable[Record | Mistake], encoder: Encoder) -> list[TokenizedDocument]:
    """Tokenize documents batch by batch; the text of one batch is in memory at a time.

    Args:
        records: Documents, and lines that are none.
        encoder: The model's tokenizer.

    Raises:
        DataError: Lines that cannot be used (up to five are named), or messages without a chat template.
    """
    documents: list[TokenizedDocument] = []
    mistakes: list[Mistake] = []
    batch: list[Rendered] = []
    characters = 0
    for record in records:
        rendered = record if isinstance(record, Mistake) else encoder.render(record)
        if isinstance(rendered, Mistake):
            mistakes.append(rendered)
            if len(mistakes) == MAX_MISTAKES:
                break
        elif not mistakes:  # after a first mistake, only further ones are looked for
            batch.append(rendered)
            characters += len(rendered.text)
            if characters >= _BATCH_CHARACTERS:
                documents += _tokenize_batch(batch, encoder)
                batch, characters = [], 0
    if mistakes:
        raise _refusal(mistakes)
    return documents + _tokenize_batch(batch, encoder)


def _tokenize_batch(batch: Sequence[Rendered], encoder: Encoder) -> list[TokenizedDocument]:
    documents: list[TokenizedDocument] = []
    for templated in (False, True):
        part = [item for item in batch if item.templated is templated]
        # A chat template writes its special tokens itself: the tokenizer must not add them a second time.
        tokens = encoder.tokenize([item.text for item in part], special_tokens=not templated)
        for item, ids in zip(part, tokens, strict=True):
            record = item.record
            if ids.size == 0:
                raise DataError("the tokenizer makes no token of this document", where=record.where)
            name = record.id or record.digest[:ID_DIGITS]
            documents.append(TokenizedDocument(name, record.slice, record.digest, ids))
    return documents


def _refusal(mistakes: Sequence[Mistake]) -> DataError:
    first = mistakes[0]
    if len(mistakes) == 1:
        return DataError(first.message, where=first.where, hint=LINE_HINT)
    more = " first" if len(mistakes) == MAX_MISTAKES else ""
    lines = "".join(f"\n  {mistake.where}: {mistake.message}" for mistake in mistakes)
    return DataError(f"lines cannot be used; the{more} {len(mistakes)}:{lines}", hint=LINE_HINT)
