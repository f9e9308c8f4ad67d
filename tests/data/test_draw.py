"""The draw is a sample of the different documents by rank, in any order, and no more than is needed."""

import math
import random
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from quantflow.data.cut import Cutting
from quantflow.data.draw import LARGEST_PART, Drawn, draw
from quantflow.data.encode import Encoder
from quantflow.data.mistakes import Mistakes
from quantflow.data.need import SPARE, Need, need_of
from quantflow.data.params import DataParams
from quantflow.data.rank import rank
from quantflow.data.record import Mistake, Record, digest_of
from quantflow.errors import DataError
from tests.data.conftest import words
from tests.data.reading import make_params

CUTTING = Cutting(8, 8, None)


def record(content: Any, part: str = "a", name: str | None = None) -> Record:
    return Record(f"f:{name}", name, part, content, None, digest_of(content, None))


def params(**changed: Any) -> DataParams:
    return make_params(**{"calibration_windows": 2, "evaluation_windows": 4} | changed)


def asked() -> tuple[Need, int]:
    return need_of(params()), params().seed


def take(records: list[Record], encoder: Encoder, given: DataParams) -> list[Drawn]:
    drawn, _ = draw(records, encoder, need_of(given), given.seed, CUTTING, Mistakes("skip"))
    return drawn


def by_hand(records: list[Record], given: DataParams) -> set[str]:
    """Digests of the fewest documents of the lowest ranks that fill the need: BOS and a token per word."""
    need = need_of(given)
    different = {r.digest: len(str(r.content).split()) + 1 for r in records}
    order = sorted(different, key=lambda digest: rank(given.seed, "pool", digest))
    tokens = [min(different[d], math.ceil(need.tokens / LARGEST_PART)) for d in order]
    windows = [min(CUTTING.count(different[d]), math.ceil(need.windows / LARGEST_PART)) for d in order]
    for count, (t, w) in enumerate(zip(accumulate(tokens), accumulate(windows), strict=True), start=1):
        if t >= need.tokens and w >= need.windows and count >= need.documents:
            return set(order[:count])
    return set(order)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 5), st.integers(50, 600), st.integers(0, 2**16))
def test_the_draw_is_the_fewest_documents_of_the_lowest_ranks_that_fill_the_need(
    encoder: Encoder, seed: int, count: int, content: int
) -> None:
    rng = random.Random(content)
    records = [record(words(*rng.choices(range(100), k=rng.randint(2, 60)))) for _ in range(count)]
    records += rng.choices(records, k=count // 3)
    rng.shuffle(records)
    given = params(seed=seed)
    found = {item.document.digest for item in take(records, encoder, given) if item.document}
    assert found == by_hand(records, given)


def test_every_occurrence_of_a_drawn_document_is_counted_with_its_slice(encoder: Encoder) -> None:
    rng = random.Random(1)
    contents = [words(*rng.sample(range(100), 12)) for _ in range(700)]
    records = [record(rng.choice(contents), rng.choice("ab"), f"n{i}") for i in range(2000)]
    seen = Counter((r.digest, r.slice) for r in records)
    names = {}
    for r in sorted(records, key=lambda r: (r.slice, r.id or ""), reverse=True):
        names[r.digest] = (r.slice, r.id)
    drawn = take(records, encoder, params())
    assert 240 <= len(drawn) < 300
    for item in drawn:
        assert item.document is not None
        digest = item.document.digest
        assert item.occurrences == Counter({part: seen[digest, part] for part in "ab" if seen[digest, part]})
        assert (item.document.slice, item.document.id) == names[digest]


def test_a_few_giants_do_not_stand_for_everything(encoder: Encoder) -> None:
    rng = random.Random(2)
    giants = [record(words(*rng.choices(range(100), k=5000))) for _ in range(3)]
    small = [record(words(*rng.choices(range(100), k=8))) for _ in range(3000)]
    given = params(calibration_windows=100)  # 100 · 16 / 0.5, twice over: 6400 tokens
    drawn = take([*giants, *small], encoder, given)
    tokens = sorted(len(item.document.tokens) for item in drawn if item.document)
    assert sum(tokens[:-3]) > 6400 * (1 - 3 / LARGEST_PART)


def test_refused_conversations_are_counted_if_they_would_have_been_drawn(encoder: Encoder) -> None:
    rng = random.Random(3)
    texts = [record(words(*rng.sample(range(100), 12))) for _ in range(1000)]
    refused = [record([{"role": "tool", "content": words(i % 100, i // 100)}]) for i in range(1000)]
    counts = set()
    for _ in range(3):
        together = [*texts, *refused]
        rng.shuffle(together)
        drawn = take(together, encoder, params())
        counts.add(sum(item.document is None for item in drawn))
    assert len(counts) == 1
    assert 100 < counts.pop() < 500


def test_the_need_follows_from_windows_shares_and_what_the_gate_asks_for() -> None:
    need = need_of(params(calibration_windows=100, evaluation_windows=50))
    assert need.tokens == SPARE * 100 * 16 / 0.5
    assert need.windows == SPARE * 50 / 0.25
    assert need.documents == SPARE * 30 / 0.25
    shares = {"calibration_share": 0.9, "selection_share": 0.0, "evaluation_share": 0.1}
    assert need_of(params(evaluation_windows=50, **shares)).windows == SPARE * 50 / 0.1


class Deaf(Encoder):
    """Makes nothing of texts that begin with `w9`."""

    def tokenize(self, texts: list[str], *, special_tokens: bool) -> list[NDArray[np.int32]]:
        tokens = super().tokenize(texts, special_tokens=special_tokens)
        return [ids[:0] if text.startswith("w9") else ids for text, ids in zip(texts, tokens, strict=True)]


def test_a_text_of_which_the_tokenizer_makes_nothing_is_refused_or_skipped_like_any_other(
    source: Path,
) -> None:
    encoder = Deaf(source / "checkpoint")
    records = [record("w1 w2", name="1"), record("w9", name="2")]
    with pytest.raises(DataError, match="makes no token of it") as caught:
        draw(records, encoder, *asked(), CUTTING, Mistakes("refuse"))
    assert caught.value.where == "f:2"
    drawn, seen = draw(records, encoder, *asked(), CUTTING, Mistakes("skip"))
    assert (seen.documents, sum(item.document is None for item in drawn)) == (2, 1)


def test_mistakes_among_the_records_do_not_reach_the_draw(encoder: Encoder) -> None:
    mistakes = Mistakes("skip")
    found, seen = draw(
        [Mistake("f:1", "no", undecodable=True), record("w1"), Mistake("f:3", "no")],
        encoder,
        *asked(),
        CUTTING,
        mistakes,
    )
    assert (len(found), seen.documents, mistakes.undecodable, mistakes.invalid) == (1, 1, 1, 1)


def test_a_template_that_takes_no_conversation_ends_the_reading_soon(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quantflow.data.draw.MOST_REFUSED", 5)
    refused = [record([{"role": "tool", "content": words(i)}], name=str(i)) for i in range(20)]
    read = iter(refused)
    with pytest.raises(DataError, match=r"first 5 conversations .* tools are not for us") as caught:
        draw(read, encoder, *asked(), CUTTING, Mistakes("skip"))
    assert caught.value.where == "f:4" and len(list(read)) == 15
    assert len(take([record(words(1)), *refused], encoder, params())) == 21
