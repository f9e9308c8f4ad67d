"""The draw: of all documents only those are tokenized and held that the windows asked for can need.

Documents are ranked by a hash of seed and content. Those of the lowest ranks, as many as are needed, are a
uniform sample without replacement of the different documents, whatever order and however often they come
(Cohen & Kaplan, "Summarizing data using bottom-k sketches", 2007). Nothing else is remembered of a document,
so memory follows from what the recipe asks for and not from the size of the files.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from quantflow.data.cut import Cutting
from quantflow.data.encode import Encoder, Rendered, TokenizedDocument
from quantflow.data.mistakes import Mistakes
from quantflow.data.near import signature
from quantflow.data.need import Need
from quantflow.data.rank import rank
from quantflow.data.record import Mistake, Record
from quantflow.errors import DataError

LARGEST_PART = 32
"""A document counts for at most one part in so many of what is needed, so that a few long ones cannot stand
for everything and leave nothing for one of the splits."""

MOST_SLICES = 1000
"""Slices are parts of a business; a column with more values than this is an id or a text."""

ID_DIGITS = 16
"""Hexadecimal digits of the content's hash that stand for a missing id; 64 bits do not collide by chance."""

MOST_REFUSED = 1000
"""Conversations that the chat template refuses, before it takes a document, after which nothing is expected
of the rest: they would be held until there is enough else, and reading on could take hours."""

_BATCH_CHARACTERS = 1_000_000
"""Text tokenized at once: enough to keep every core busy, a small part of the memory a model takes."""


@dataclass
class Drawn:
    """A document of the draw.

    Attributes:
        document: It, tokenized; None where the chat template or the tokenizer made nothing of it.
        signature: Its MinHash signature, [permutations].
        characters: Length of its text.
        occurrences: Slice → how often the content came under it.
        rendered: How the chat template took it; its text is dropped.
    """

    document: TokenizedDocument | None
    signature: NDArray[np.uint32]
    characters: int
    occurrences: Counter[str]
    rendered: Rendered | None


@dataclass
class Seen:
    """What was read, whether drawn or not.

    Attributes:
        documents: Documents.
        characters: Characters of their texts.
        replaced: Documents with U+FFFD, the mark of a character lost in an earlier conversion.
        slices: Slice → documents.
    """

    documents: int = 0
    characters: int = 0
    replaced: int = 0
    slices: Counter[str] = field(default_factory=Counter)


@dataclass
class _Held:
    """A candidate; its names are those of the first of its occurrences by slice and id."""

    number: int
    name: str
    record: Record
    occurrences: Counter[str]
    drawn: Drawn | None = None
    tokens: int = 0
    windows: int = 0


class _Pool:
    """The candidates of the lowest ranks that fill the need, and no more."""

    def __init__(self, need: Need, seed: int) -> None:
        self._need = need
        self._seed = seed
        self._held: dict[str, _Held] = {}
        self._heap: list[tuple[int, str]] = []
        self._tokens = self._windows = self._documents = 0

    def offer(self, record: Record) -> _Held | None:
        """Take a document in if it may be needed; it is to be tokenized then, and settled."""
        known = self._held.get(record.digest)
        if known is not None:
            known.occurrences[record.slice] += 1
            named = (record.slice, record.id or "")
            if named < (known.record.slice, known.name):
                known.name = record.id or ""
                known.record = replace(known.record, slice=record.slice)
            return None
        number = int(rank(self._seed, "pool", record.digest), 16)
        if self._is_full() and number > -self._heap[0][0]:
            return None
        held = _Held(number, record.id or "", record, Counter({record.slice: 1}))
        self._held[record.digest] = held
        return held

    def settle(self, held: _Held, drawn: Drawn, tokens: int, windows: int) -> None:
        """Count a candidate in, and drop those that are no longer needed."""
        held.drawn = drawn
        held.record = replace(held.record, content="", tools=None)
        held.tokens = min(tokens, math.ceil(self._need.tokens / LARGEST_PART))
        held.windows = min(windows, math.ceil(self._need.windows / LARGEST_PART))
        heapq.heappush(self._heap, (-held.number, held.record.digest))
        self._count(held, 1)
        while self._heap:
            last = self._held[self._heap[0][1]]
            self._count(last, -1)
            if not self._is_full():
                self._count(last, 1)
                break
            heapq.heappop(self._heap)
            del self._held[last.record.digest]

    def content(self) -> list[_Held]:
        """Who is in it."""
        return [self._held[digest] for _, digest in self._heap]

    def _count(self, held: _Held, sign: int) -> None:
        assert held.drawn is not None
        self._tokens += sign * held.tokens
        self._windows += sign * held.windows
        self._documents += sign * (held.drawn.document is not None)

    def _is_full(self) -> bool:
        return (
            self._tokens >= self._need.tokens
            and self._windows >= self._need.windows
            and self._documents >= self._need.documents
        )


def draw(
    records: Iterable[Record | Mistake],
    encoder: Encoder,
    need: Need,
    seed: int,
    cutting: Cutting,
    mistakes: Mistakes,
) -> tuple[list[Drawn], Seen]:
    """Read all documents and keep those of the draw, tokenized.

    Args:
        records: Documents, and lines that are none.
        encoder: The model's tokenizer.
        need: How much is held, no more.
        seed: Of the draw.
        cutting: How selection and evaluation windows are cut.
        mistakes: Takes lines that are none.

    Returns:
        The drawn documents in no particular order, and what was read.

    Raises:
        DataError: Lines that cannot be used, too many slices, or messages without a chat template.
    """
    pool, seen = _Pool(need, seed), Seen()
    batch: list[tuple[_Held, Rendered]] = []
    characters = refused = 0
    taken = False

    def settle_batch() -> None:
        for held, drawn in _tokenize(batch, encoder):
            if drawn.document is None:
                mistakes.add(Mistake(held.record.where, "the tokenizer makes no token of it"), counted=False)
            tokens = len(drawn.document.tokens) if drawn.document else 0
            pool.settle(held, drawn, tokens, cutting.count(tokens) if tokens else 0)

    for record in records:
        if isinstance(record, Mistake):
            mistakes.add(record)
            continue
        mistakes.passed()
        _see(seen, record)
        held = None if mistakes.found else pool.offer(record)
        if held is None:
            continue
        rendered = encoder.render(record)
        if isinstance(rendered, Mistake):
            mistakes.add(rendered, counted=False)
            pool.settle(held, _refused(held), 0, 0)
            refused += 1
            if refused == MOST_REFUSED and not taken:
                raise DataError(
                    f"none of the first {MOST_REFUSED} conversations can be used: {rendered.message}",
                    where=record.where,
                    hint="Use a model whose chat template takes such conversations, or other data.",
                )
            continue
        taken = True
        batch.append((held, rendered))
        characters += len(rendered.text)
        if characters >= _BATCH_CHARACTERS:
            settle_batch()
            batch, characters = [], 0
    settle_batch()
    mistakes.close()
    return [_named(held) for held in pool.content()], seen


def _see(seen: Seen, record: Record) -> None:
    seen.documents += 1
    seen.characters += record.characters
    seen.replaced += "\ufffd" in record.own_text
    seen.slices[record.slice] += 1
    if len(seen.slices) > MOST_SLICES:
        raise DataError(
            f"there are more than {MOST_SLICES} different slices up to here: that is an id or a text",
            where=record.where,
            hint="Name another field in data.fields.slice, one with the parts of your business.",
        )


def _refused(held: _Held) -> Drawn:
    return Drawn(None, np.empty(0, dtype=np.uint32), held.record.characters, held.occurrences, None)


def _tokenize(batch: list[tuple[_Held, Rendered]], encoder: Encoder) -> list[tuple[_Held, Drawn]]:
    done: list[tuple[_Held, Drawn]] = []
    for templated in (False, True):
        part = [item for item in batch if item[1].templated is templated]
        # A chat template writes its special tokens itself: the tokenizer must not add them a second time.
        tokens = encoder.tokenize([rendered.text for _, rendered in part], special_tokens=not templated)
        for (held, rendered), ids in zip(part, tokens, strict=True):
            record = held.record
            if ids.size == 0:
                done.append((held, _refused(held)))
                continue
            document = TokenizedDocument("", record.slice, record.digest, ids)
            bare = replace(rendered, text="")
            marks = signature(record.own_text)
            done.append((held, Drawn(document, marks, record.characters, held.occurrences, bare)))
    return done


def _named(held: _Held) -> Drawn:
    drawn = held.drawn
    assert drawn is not None
    if drawn.document is None:
        return drawn
    name = held.name or held.record.digest[:ID_DIGITS]
    return replace(drawn, document=replace(drawn.document, id=name, slice=held.record.slice))
