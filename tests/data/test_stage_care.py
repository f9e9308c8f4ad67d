"""What the stage does about too much, too similar, unusable and oddly templated text."""

import random
from pathlib import Path
from typing import Any

import pytest

from quantflow.data.documents import load_accounting, load_documents
from quantflow.data.params import ReadParams
from quantflow.data.stage import run
from quantflow.data.windows import load_windows
from quantflow.errors import DataError, RecipeError
from tests.data.conftest import BOS, words, write_source
from tests.data.making import content_of, corpus, make, write
from tests.data.reading import make_params
from tests.data.recording import Recorder


def test_more_documents_than_the_windows_need_are_read_and_counted_but_not_tokenized(
    tmp_path: Path, source: Path
) -> None:
    rng = random.Random(4)
    lines = [{"text": words(*rng.sample(range(100), 20)), "slice": "ab"[i % 2]} for i in range(2000)]
    lines += lines[:500]
    output, _ = make(
        tmp_path, source, lines, calibration_windows=4, evaluation_windows=40, evaluation_length=32
    )
    accounting = load_accounting(output)
    reading, total = accounting.reading, accounting.total
    assert reading.documents == 2500 and reading.slices == {"a": 1250, "b": 1250}
    assert reading.characters == sum(len(line["text"]) for line in lines)
    assert 240 <= total.documents_read - total.documents_duplicate < 400
    assert total.documents_duplicate > 20
    assert reading.documents == total.documents_read + reading.documents_undrawn
    assert len(load_documents(output)) == total.documents_read - total.documents_duplicate
    assert accounting.splits["calibration"].windows == 4
    assert accounting.splits["evaluation"].windows == accounting.splits["selection"].windows == 40


def test_what_is_drawn_depends_on_contents_and_seed_and_not_on_their_order(
    tmp_path: Path, source: Path
) -> None:
    rng = random.Random(4)
    lines = [{"text": words(*rng.sample(range(100), 9)), "id": f"d{i}"} for i in range(1500)]
    few = {"calibration_windows": 2, "evaluation_windows": 20, "evaluation_length": 16}
    first, _ = make(tmp_path, source, lines, **few)
    rng.shuffle(lines)
    again, _ = make(tmp_path, source, lines, **few)
    other, _ = make(tmp_path, source, lines, **few, seed=1)
    assert content_of(first) == content_of(again)
    mine, others = ({document.id for document in load_documents(folder)} for folder in (first, other))
    assert len(mine - others) > len(mine) / 2
    assert {f"d{i}" for i in range(len(mine))} != mine  # never the first N


def test_near_duplicates_are_in_one_split_counted_and_reported(tmp_path: Path, source: Path) -> None:
    rng = random.Random(6)
    lines = corpus(160)
    for group in range(6):
        form = [rng.randrange(100) for _ in range(40)]
        for copy in range(4):
            form[copy] = rng.randrange(100)
            lines.append({"id": f"form-{group}-{copy}", "text": words(*form), "slice": "ab"[copy % 2]})
    output, recorder = make(tmp_path, source, lines)
    documents = load_documents(output)
    for group in range(6):
        mine = [d for d in documents if d.id.startswith(f"form-{group}")]
        assert len(mine) == 4
        assert len({d.split for d in mine}) == len({d.near for d in mine}) == 1
        assert documents[mine[0].near or 0].id.startswith(f"form-{group}")
    assert {d.near for d in documents if not d.id.startswith("form")} == {None}
    event = recorder.events["near-duplicate-documents"]
    assert event == {"documents": 24, "groups": 6, "largest": 4}
    accounting = load_accounting(output)
    assert accounting.total.documents_near_duplicate == 18
    assert accounting.near_duplicates is not None and accounting.near_duplicates.groups == 6


def test_an_evaluation_that_calibration_has_word_for_word_is_refused(tmp_path: Path, source: Path) -> None:
    rng = random.Random(7)
    notice = words(*(rng.randrange(100) for _ in range(60)))
    lines = [{"text": f"{words(*rng.sample(range(100), 60))} {notice}", "id": f"d{i}"} for i in range(120)]
    wide = {"evaluation_length": 128, "calibration_length": 128, "calibration_windows": 20}
    output, recorder = make(tmp_path, source, lines, **wide)
    overlap = load_accounting(output).splits["evaluation"].overlap
    assert overlap is not None and overlap == pytest.approx(0.5, abs=0.02)
    assert recorder.events["evaluation-overlaps"] == {"share": round(overlap, 6), "passage": 50}
    with pytest.raises(DataError, match="word for word") as caught:
        make(tmp_path, source, lines, **wide, max_overlap=0.3)
    assert caught.value.where == "data.max_overlap"
    assert "system prompts" in caught.value.hint


def test_an_evaluation_that_selection_has_word_for_word_is_seen_as_well(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(7)
    notice = words(*(rng.randrange(100) for _ in range(60)))
    lines = [{"text": words(*rng.sample(range(100), 90)), "id": f"d{i:03}"} for i in range(120)]
    wide = {"evaluation_length": 256, "calibration_length": 128, "calibration_windows": 20}
    output, _ = make(tmp_path, source, lines, **wide)
    assert load_accounting(output).splits["evaluation"].overlap == 0
    calibrated = {document.id for document in load_documents(output) if document.split == "calibration"}

    def told(documents: Any, *_: Any) -> Any:
        others = ("selection", "evaluation")
        return tuple("calibration" if d.id in calibrated else others[int(d.id[1:]) % 2] for d in documents)

    monkeypatch.setattr("quantflow.data.stage.assign_splits", told)
    shared = [{**x, "text": x["text"] + ("" if x["id"] in calibrated else f" {notice}")} for x in lines]
    output, _ = make(tmp_path, source, shared, **wide)
    splits = load_accounting(output).splits
    assert splits["selection"].overlap == 0
    assert splits["evaluation"].overlap == pytest.approx(
        60 / 151, abs=0.01
    )  # a word before it may be the same, too


def test_the_windows_say_stride_and_bos_and_which_positions_are_scored(tmp_path: Path, source: Path) -> None:
    plain, _ = make(tmp_path, source, corpus(), evaluation_bos="never")
    overlapping, _ = make(tmp_path, source, corpus(), evaluation_stride=4, evaluation_bos="always")
    for folder, bos, stride in ((plain, False, 8), (overlapping, True, 4)):
        evaluation = load_accounting(folder).splits["evaluation"]
        assert (evaluation.bos, evaluation.stride, evaluation.length) == (bos, stride, 8)
        windows = load_windows(folder / "evaluation.safetensors")
        assert {int(window[0]) == BOS for window in windows} == {bos}
        assert evaluation.scored_positions == windows.scored_counts.sum()
        assert (evaluation.bos_added > 0) == bos
    texts = {d.id: d.tokens for d in load_documents(overlapping) if d.split == "evaluation"}
    # Every window overlaps the one before, so that all but the BOS of each document is scored, once.
    assert load_accounting(overlapping).splits["evaluation"].scored_positions == sum(texts.values()) - len(
        texts
    )


def test_bos_cannot_be_asked_of_a_tokenizer_that_has_none(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", bos=False)
    with pytest.raises(RecipeError, match="has no such token") as caught:
        make(tmp_path, source, corpus(), evaluation_bos="always")
    assert caught.value.where == "data.evaluation.bos"


@pytest.mark.parametrize("policy", ["refuse", "skip"])
def test_lines_that_cannot_be_used_are_refused_or_skipped_counted_and_reported(
    tmp_path: Path, source: Path, policy: str
) -> None:
    path = write(tmp_path / "a.jsonl", corpus())
    with path.open("ab") as file:
        file.write('{"text": "w1 été"}\n'.encode() + b'{"text": "\xff"}\n{"txt": "w1"}\n')
        file.write(b'{"messages": [{"role": "tool", "content": "w1"}]}\n')
    given = make_params(path, reading=ReadParams(invalid=policy))  # type: ignore[arg-type]
    output, recorder = tmp_path / "output", Recorder()
    output.mkdir()
    if policy == "refuse":
        with pytest.raises(DataError) as caught:
            run(given, {"source": source}, output, recorder)
        lines = caught.value.message.splitlines()
        assert lines[0] == "lines cannot be used; the 2:"  # rendering stops at the first
        assert [line.split(": ")[0] for line in lines[1:]] == [f"  {path}:142", f"  {path}:143"]
        assert "data.invalid to skip" in caught.value.hint
        return
    run(given, {"source": source}, output, recorder)
    skipped = {"undecodable": 1, "invalid": 1, "refused": 1}
    assert recorder.events["documents-skipped"] == skipped
    reading = load_accounting(output).reading
    assert (reading.documents_undecodable, reading.documents_invalid, reading.documents_refused) == (1, 1, 1)
    assert reading.documents == 142
    assert reading.documents == load_accounting(output).total.documents_read + reading.documents_refused


def test_a_mistake_in_a_long_file_is_told_before_the_file_is_read_to_its_end(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quantflow.data.mistakes._LOOK_AHEAD", 50)
    lines: list[dict[str, Any]] = [{"txt": "w1"}, *corpus(100), {"txt": "w2"}]
    with pytest.raises(DataError, match="has neither `text` nor `messages`") as caught:
        make(tmp_path, source, lines)
    assert caught.value.where.endswith("all.jsonl:1")


def test_a_slice_column_that_is_an_id_is_an_error(tmp_path: Path, source: Path) -> None:
    lines = [{"text": "w1", "slice": f"customer {i}"} for i in range(1200)]
    with pytest.raises(DataError, match="more than 1000 different slices") as caught:
        make(tmp_path, source, lines)
    assert "data.fields.slice" in caught.value.hint
    assert caught.value.where.endswith("all.jsonl:1001")


def test_one_text_file_is_one_document_and_the_error_says_what_to_set(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(words(*range(i, i + 20)) for i in range(0, 80, 4)))
    output = tmp_path / "output"
    output.mkdir()
    with pytest.raises(DataError, match=r"no document is left|not enough for") as caught:
        run(make_params(path), {"source": source}, output, Recorder())
    assert "data.documents to paragraph or line" in caught.value.hint


def test_text_of_an_earlier_lossy_conversion_is_reported(tmp_path: Path, source: Path) -> None:
    _, recorder = make(tmp_path, source, [*corpus(), {"text": "caf\ufffd w1"}])
    assert recorder.events["replacement-characters"] == {"documents": 1}


def test_files_of_a_detected_encoding_are_reported(tmp_path: Path, source: Path) -> None:
    path = write(tmp_path / "a.jsonl", corpus())
    other = tmp_path / "zh.txt"
    other.write_bytes("您好，我上周买的恒温器一直连不上网关，请问应该怎么处理？\n".encode("gb18030") * 3)
    output, recorder = tmp_path / "output", Recorder()
    output.mkdir()
    run(make_params(path, other), {"source": source}, output, recorder)
    assert recorder.events["encoding-detected"] == {"encoding": "gb18030", "files": 1}
    kinds = {(kind.format, kind.encoding, kind.told_by) for kind in load_accounting(output).reading.kinds}
    assert kinds == {("jsonl", "utf-8", "utf-8"), ("txt", "gb18030", "detected")}


def test_files_that_are_not_in_the_encoding_that_is_set_are_reported(tmp_path: Path, source: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*corpus(), {"text": "w1 " + "é" * 40}])
    path.write_text(path.read_text().replace("\\u00e9", "é"), encoding="utf-8")
    output, recorder = tmp_path / "output", Recorder()
    output.mkdir()
    run(make_params(path, reading=ReadParams(encoding="cp1252")), {"source": source}, output, recorder)
    assert recorder.events["encoding-not-as-set"] == {"encoding": "utf-8", "files": 1}


def test_tools_and_text_that_the_template_leaves_out_are_reported(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", chat_template="{{ bos_token }}{{ messages[0].content }}")
    chat = [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3"}]
    lines = [*corpus(), {"messages": chat, "tools": [{"name": "w9"}]}]
    _, recorder = make(tmp_path, source, lines)
    assert recorder.events["chat-template-leaves-out-tools"] == {"documents": 1}
    assert recorder.events["chat-template-leaves-out-text"]["documents"] == 48
