"""The estimate of a text is close to what the data stage then counts."""

import gzip
import json
from pathlib import Path

import pytest

from quantflow.data.params import DataParams, ReadParams
from quantflow.data.stage import run
from quantflow.errors import DataError
from quantflow.plan.text import SAMPLE_BYTES, TextSize, counted_text, estimated_text
from quantflow.source.checkpoint import Checkpoint, save_checkpoint
from tests.reporting import RecordingReporter
from tests.tiny_models import documents

TIMES_THE_SAMPLE = 4


def params(*files: Path, windows: int = 8, most: int = 100_000, stride: int = 64) -> DataParams:
    return DataParams(
        files=tuple(map(str, files)),
        slices=("letters",) * len(files),
        reading=ReadParams(),
        calibration_windows=windows,
        calibration_length=64,
        evaluation_windows=most,
        evaluation_length=64,
        evaluation_stride=stride,
        evaluation_bos="auto",
        calibration_share=0.3,
        selection_share=0.2,
        evaluation_share=0.5,
        max_overlap=1.0,
        seed=0,
    )


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def counted(model: Path, of: DataParams, folder: Path) -> TextSize:
    source, output = folder / "source", folder / "data"
    source.mkdir()
    output.mkdir()
    save_checkpoint(source, Checkpoint(model, "", "folder", str(model), "bfloat16", "llama", 1, 1, {}))
    run(of, {"source": source}, output, RecordingReporter())
    return counted_text(output)


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    """A file of which the sample is a small part, of more documents than are looked at."""
    texts = documents(1500, seed=3)
    path = write(tmp_path / "long.jsonl", texts)
    assert path.stat().st_size > TIMES_THE_SAMPLE * SAMPLE_BYTES
    return path


FIGURES = ("calibration_windows", "evaluation_tokens", "evaluation_windows", "positions")


@pytest.mark.parametrize(
    "asked",
    [
        {"windows": 10_000},  # more than there is
        {"windows": 40, "most": 100},  # of which a few documents are drawn
        {"windows": 10_000, "stride": 32},  # windows that overlap
    ],
)
def test_a_sample_with_the_tokenizer_is_close_to_the_count(
    asked: dict[str, int], long_file: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    wanted = params(long_file, **asked)
    estimated = estimated_text(wanted, tiny_llama / "tokenizer.json")
    real = counted(tiny_llama, wanted, tmp_path)
    assert (estimated.known_by, real.known_by) == ("sampled", "counted")
    for name in FIGURES:
        assert getattr(estimated, name) == pytest.approx(getattr(real, name), rel=0.1), name


@pytest.mark.parametrize("ending", [".jsonl.gz", ".csv", ".txt"])
def test_any_format_can_be_estimated(ending: str, tmp_path: Path) -> None:
    text, path = "word " * 400, tmp_path / f"data{ending}"
    if ending == ".jsonl.gz":
        path.write_bytes(gzip.compress((json.dumps({"text": text}) + "\n").encode()))
    else:
        path.write_text(f"text\n{text}\n" if ending == ".csv" else text)
    assert estimated_text(params(path), None).held_tokens == pytest.approx(500, rel=0.01)


def test_what_is_not_drawn_is_not_tokenized(long_file: Path, tiny_llama: Path) -> None:
    few, all_of_them = (
        estimated_text(params(long_file, windows=windows, most=most), tiny_llama / "tokenizer.json")
        for windows, most in ((1, 1), (100_000, 100_000))
    )
    assert few.held_tokens < all_of_them.held_tokens / 4
    assert few.reading_seconds is not None
    assert all_of_them.reading_seconds is not None
    assert few.reading_seconds < all_of_them.reading_seconds


def test_no_more_calibration_windows_than_asked_are_expected(long_file: Path, tiny_llama: Path) -> None:
    assert estimated_text(params(long_file), tiny_llama / "tokenizer.json").calibration_windows == 8


def test_without_a_tokenizer_characters_are_counted_and_no_speed_is_known(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ["x" * 400] * 10)
    estimated = estimated_text(params(path), None)
    assert (estimated.known_by, estimated.held_tokens) == ("assumed", 1000)
    assert estimated.reading_seconds is None


def test_messages_count_with_what_a_template_puts_around_them(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "x" * 399}, {"role": "assistant", "content": "y" * 400}]
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    assert estimated_text(params(path), None).held_tokens == 200 + 10


def test_a_text_that_is_too_little_gives_no_calibration_windows(tmp_path: Path) -> None:
    short = write(tmp_path / "short.jsonl", ["Hello there."])
    assert estimated_text(params(short), None).calibration_windows == 0


def test_a_text_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(DataError, match="no document"):
        estimated_text(params(empty), None)
