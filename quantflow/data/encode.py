"""Documents to tokens, with the model's own tokenizer and chat template."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer

from quantflow.data.record import Mistake, Record
from quantflow.errors import DataError, SourceError

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
        text: Its text.
        templated: Whether a chat template made it, which writes its own special tokens.
        tools_lost: Whether the template leaves out its tools, or calls to them.
        text_lost: Whether the template leaves out some of what is said.
    """

    text: str
    templated: bool
    tools_lost: bool = False
    text_lost: bool = False


class Encoder:
    """The model's tokenizer and chat template.

    Args:
        folder: Checkpoint folder with the tokenizer's files.

    Attributes:
        eos: Token id that ends a document; None where the tokenizer has none.
        bos: Token id that begins a document; None where the tokenizer has none.
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
        self.bos: int | None = self._tokenizer.bos_token_id
        self.date_asked = False

    def begins_with_bos(self) -> bool:
        """Whether the tokenizer itself puts BOS before a text."""
        (ids,) = self.tokenize(["a"], special_tokens=True)
        return self.bos is not None and bool(ids.size) and int(ids[0]) == self.bos

    def render(self, record: Record) -> Rendered | Mistake:
        """The document's text: as it is, or messages in the chat template without a generation prompt.

        Raises:
            DataError: There are messages, but the tokenizer has no chat template.
        """
        if isinstance(record.content, str):
            return Rendered(record.content, templated=False)
        if self._tokenizer.chat_template is None:
            raise DataError(
                "this is a conversation, but the model's tokenizer has no chat template",
                where=record.where,
                hint="Use an instruct model, add chat_template.jinja to the model's folder, or give the data "
                "as `text`.",
            )
        try:
            text = self._filled(record.content, record.tools)
            without_tools = self._filled(record.content, None) if record.tools else ""
        except Exception as error:  # a template is a program of the model's author: it may fail in any way
            return Mistake(record.where, f"the model's chat template refuses the messages: {error}")
        called = [
            call["function"]["name"] for message in record.content for call in message.get("tool_calls", ())
        ]
        return Rendered(
            text,
            templated=True,
            tools_lost=text == without_tools or not all(name in text for name in called),
            text_lost=not _holds(text, record.content),
        )

    def _filled(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        """The conversation by the template, a message of calls alone as an empty one where that is better.

        Such a message has null for content. Templates made for calls look for that; others write it out as
        the word None, which nobody said, or fail.
        """
        if all(message["content"] is not None for message in messages):
            return self._template(messages, tools)
        empty = self._template([m | {"content": m["content"] or ""} for m in messages], tools)
        try:
            as_it_is = self._template(messages, tools)
        except Exception:  # what it cannot do with null it has done with the empty text
            return empty
        return empty if as_it_is.count("None") > empty.count("None") else as_it_is

    def _template(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        text: str = self._tokenizer.apply_chat_template(
            messages,
            tools=tools,
            tokenize=False,
            add_generation_prompt=False,
            strftime_now=self._strftime,
        )
        return text

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

    def texts(self, documents: Sequence[NDArray[np.int32]]) -> list[str]:
        """What tokens read as, without special tokens."""
        return [self._tokenizer.decode(tokens.tolist(), skip_special_tokens=True) for tokens in documents]

    def _strftime(self, form: str) -> str:
        self.date_asked = True
        return TEMPLATE_DATE.strftime(form)


def _holds(text: str, messages: list[dict[str, Any]]) -> bool:
    """Whether all that is said is in the text, in order."""
    at = 0
    for message in messages:
        words = (message["content"] or "").strip()
        found = text.find(words, at)
        if found < 0:
            return False
        at = found + len(words)
    return True
