import json
import random
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from quantflow.data.documents import SPLITS, Counts, load_accounting, load_documents
from quantflow.data.stage import run
from quantflow.data.windows import load_windows, scored_documents
from quantflow.errors import DataError, SourceError
from tests.data.conftest import BOS, DATED_TEMPLATE, FIRST_WORD, words, write_source
from tests.data.making import content_of, corpus, make, write
from tests.data.reading import make_params
from tests.data.recording import Recorder


def test_the_stage_writes_three_sets_of_windows_the_documents_and_the_accounting(
    tmp_path: Path, source: Path
) -> None:
    output, recorder = make(tmp_path, source, corpus())
    assert sorted(content_of(output)) == [
        "accounting.json",
        "calibration-documents.safetensors",
        "calibration.safetensors",
        "documents.json",
        "evaluation.safetensors",
        "selection.safetensors",
    ]
    calibration = load_windows(output / "calibration.safetensors")
    assert [len(window) for window in calibration] == [16] * 10
    size = (tmp_path / "all.jsonl").stat().st_size
    assert list(recorder.progress.values()) == [(size, size), (size, size)]


def test_windows_of_selection_and_evaluation_are_their_own_documents_tokens(
    tmp_path: Path, source: Path
) -> None:
    lines = [{"id": f"d{i:02}", "text": words(i, i + 1, i + 2)} for i in range(40)]
    output, _ = make(tmp_path, source, lines, calibration_windows=1)
    documents = load_documents(output)
    for split in ("selection", "evaluation"):
        windows = load_windows(output / f"{split}.safetensors")
        assert len(windows) == 10
        for tokens, index in zip(windows, windows.document, strict=True):
            assert documents[index].split == split
            first = FIRST_WORD + int(documents[index].id[1:])
            assert tokens.tolist() == [BOS, first, first + 1, first + 2]


def test_calibration_documents_are_packed_in_seeded_order_across_slices(tmp_path: Path, source: Path) -> None:
    lines = [{"id": f"d{i:02}", "slice": "ab"[i // 20], "text": f"w{i}"} for i in range(40)]
    orders = []
    for seed in (0, 1):
        output, _ = make(tmp_path, source, lines, calibration_windows=1, calibration_length=59, seed=seed)
        (window,) = load_windows(output / "calibration.safetensors")
        orders.append([token - FIRST_WORD for token in window.tolist() if token >= FIRST_WORD])
    for order in orders:
        assert len(order) == 20  # 20 documents of BOS and a word, 19 EOS between them
        slices = [word // 20 for word in order]
        assert slices not in (sorted(slices), sorted(slices, reverse=True))
        assert order != sorted(order)


def test_every_document_is_in_one_split_in_the_shares_asked_for(tmp_path: Path, source: Path) -> None:
    output, _ = make(tmp_path, source, corpus())
    documents = load_documents(output)
    assert len({document.id for document in documents}) == len(documents) == 140
    for part, size in (("orders", 35), ("billing", 105)):
        mine = [document.split for document in documents if document.slice == part]
        assert len(mine) == size
        assert [mine.count(split) for split in SPLITS] == pytest.approx([size / 2, size / 4, size / 4], abs=1)


def test_neither_the_order_of_lines_nor_of_files_nor_who_holds_which_changes_a_byte(
    tmp_path: Path, source: Path
) -> None:
    lines = corpus()
    lines += [{**line, "id": f"copy-{line['id']}"} for line in lines[:9]]
    output, _ = make(tmp_path, source, lines)
    random.Random(1).shuffle(lines)
    files = [write(tmp_path / "b.jsonl", lines[:50]), write(tmp_path / "a.jsonl", lines[50:])]
    other = tmp_path / "other"
    other.mkdir()
    run(make_params(*files), {"source": source}, other, Recorder())
    first, second = content_of(output), content_of(other)
    counts, again = (json.loads(content.pop("accounting.json")) for content in (first, second))
    assert (counts["reading"].pop("kinds"), again["reading"].pop("kinds")) != ([], [])  # one file, two files
    assert second == first and again == counts


def test_the_seed_changes_the_split_and_the_windows(tmp_path: Path, source: Path) -> None:
    first, _ = make(tmp_path, source, corpus())
    second, _ = make(tmp_path, source, corpus(), seed=1)
    for name in ("documents.json", "calibration.safetensors", "evaluation.safetensors"):
        assert content_of(first)[name] != content_of(second)[name]


def test_nothing_written_names_a_path(tmp_path: Path, source: Path) -> None:
    output, _ = make(tmp_path, source, corpus())
    assert all(str(tmp_path).encode() not in content for content in content_of(output).values())


def test_every_token_is_accounted_for_by_split_and_by_slice(tmp_path: Path, source: Path) -> None:
    lines = corpus()
    copies = [{**line, "id": f"x-{line['id']}"} for line in lines[:8]]
    output, _ = make(tmp_path, source, lines + copies, calibration_windows=5)
    accounting = load_accounting(output)
    documents = load_documents(output)

    def check(counts: Counts) -> None:
        where = ("duplicate", "used", "incomplete", "undrawn", "too_short")
        assert counts.tokens_read == sum(getattr(counts, f"tokens_{name}") for name in where)

    check(accounting.total)
    assert accounting.total.documents_read == 148
    assert accounting.total.documents_duplicate == 8
    assert accounting.total.tokens_duplicate > 0
    read = sum(document.tokens for document in documents) + accounting.total.tokens_duplicate
    assert accounting.total.tokens_read == read
    for name, split in accounting.splits.items():
        mine = [document for document in documents if document.split == name]
        check(split.total)
        assert split.total.documents_read - split.total.documents_duplicate == len(mine)
        assert split.total.tokens_read - split.total.tokens_duplicate == sum(d.tokens for d in mine)
        assert set(split.slices) == {"orders", "billing"}
        for field in Counts.model_fields:
            parts = [getattr(counts, field) for counts in split.slices.values()]
            assert getattr(split.total, field) == sum(parts)
        for counts in split.slices.values():
            check(counts)
        windows = load_windows(output / f"{name}.safetensors")
        assert split.windows == len(windows)
        assert len(windows.tokens) == split.total.tokens_used + split.separators + split.bos_added
    calibration, evaluation = accounting.splits["calibration"], accounting.splits["evaluation"]
    assert (calibration.length, calibration.windows, evaluation.length) == (16, 5, 8)
    assert calibration.windows_available > 5 and calibration.total.tokens_undrawn > 0
    assert 0 < calibration.total.documents_used < calibration.total.documents_read
    scored = scored_documents(load_windows(output / "evaluation.safetensors"))
    assert (calibration.scored_positions, evaluation.scored_positions) == (0, len(scored))
    assert accounting.seed == 0


def test_copies_are_dropped_and_reported(tmp_path: Path, source: Path) -> None:
    lines = corpus()
    _, recorder = make(
        tmp_path, source, [*lines, {**lines[0], "id": "again"}, {**lines[0], "id": "and again"}]
    )
    assert recorder.events["duplicate-documents"]["documents"] == 2
    assert "2 of 142 documents were exact copies" in recorder.messages[0]


def test_plenty_of_clean_data_raises_no_event(tmp_path: Path, source: Path) -> None:
    _, recorder = make(tmp_path, source, corpus(), evaluation_length=64)
    assert recorder.events == {}


def test_fewer_calibration_windows_than_asked_are_reported_with_both_figures(
    tmp_path: Path, source: Path
) -> None:
    output, recorder = make(tmp_path, source, corpus(), calibration_windows=1000)
    there = len(load_windows(output / "calibration.safetensors"))
    assert recorder.events["fewer-calibration-windows"] == {"windows": there, "asked": 1000}
    assert 0 < there < 1000


def test_too_little_text_for_one_calibration_window_is_an_error_never_random_data(
    tmp_path: Path, source: Path
) -> None:
    with pytest.raises(DataError, match="not enough for one window of 4000") as caught:
        make(tmp_path, source, corpus(), calibration_length=4000)
    assert "data.calibration.length" in caught.value.hint


def test_files_without_a_document_are_an_error(tmp_path: Path, source: Path) -> None:
    with pytest.raises(DataError, match="the files hold no document"):
        make(tmp_path, source, [])


def test_no_document_for_the_evaluation_is_an_error(tmp_path: Path, source: Path) -> None:
    with pytest.raises(DataError, match="no document is left for the evaluation"):
        make(tmp_path, source, [{"text": words(*range(40))}])


def test_few_evaluation_documents_are_reported_with_what_that_means(tmp_path: Path, source: Path) -> None:
    _, recorder = make(tmp_path, source, corpus(116), calibration_windows=1)
    assert recorder.events["few-evaluation-documents"] == {"documents": 29, "needed": 30}
    assert any("below 30 the gate will be inconclusive" in message for message in recorder.messages)


def test_near_duplicates_without_a_window_are_not_missing_from_the_evaluation(
    tmp_path: Path, source: Path
) -> None:
    rng = random.Random(3)
    form = [rng.randrange(100) for _ in range(40)]
    lines: list[dict[str, Any]] = [{"text": words(*form[:-1], i)} for i in range(50)]
    lines += [{"text": words(*rng.sample(range(100), 40))} for _ in range(190)]
    asked = {"evaluation_share": 0.45, "selection_share": 0.05, "evaluation_length": 64}
    output, recorder = make(tmp_path, source, lines, **asked, evaluation_windows=75, calibration_windows=1)
    total = load_accounting(output).splits["evaluation"].total
    assert total.documents_near_duplicate == 49 and total.documents_used == 75
    drawn = {int(i) for i in load_windows(output / "evaluation.safetensors").document}
    documents = load_documents(output)
    independent = len({i if documents[i].near is None else documents[i].near for i in drawn})
    assert independent >= 30
    assert "few-evaluation-documents" not in recorder.events


def test_windows_too_short_to_score_are_dropped_and_reported(tmp_path: Path, source: Path) -> None:
    rng = random.Random(2)
    lines = [{"text": words(*rng.sample(range(100), 8))} for _ in range(80)]  # nine tokens with BOS
    output, recorder = make(tmp_path, source, lines, calibration_windows=1)
    assert recorder.events["short-windows-dropped"] == {"split": "evaluation", "windows": 20, "tokens": 20}
    assert load_accounting(output).splits["evaluation"].total.tokens_too_short == 20


def test_a_template_with_a_date_is_reported(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", chat_template=DATED_TEMPLATE)
    _, recorder = make(tmp_path, source, corpus())
    assert recorder.events["chat-template-date"] == {"date": "2024-07-26"}


def test_a_tokenizer_of_another_model_is_an_error(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", vocab_size=50)
    with pytest.raises(SourceError, match="the model's vocabulary ends at 49"):
        make(tmp_path, source, corpus())


def test_a_document_of_more_than_a_million_tokens_is_cut_like_any_other(tmp_path: Path, source: Path) -> None:
    lines = [{"text": "w3 " * 1_000_001}, *({"text": words(i, 1, 2)} for i in range(3))]
    output, _ = make(tmp_path, source, lines, evaluation_length=2048, calibration_windows=1)
    accounting = load_accounting(output)
    assert accounting.total.tokens_read == 1_000_002 + 3 * 4
    assert max(document.tokens for document in load_documents(output)) == 1_000_002


def test_shares_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(ValidationError, match="shares sum to"):
        make_params(calibration_share=0.9)
