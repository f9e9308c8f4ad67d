"""The estimate of a text is close to what the data stage then counts."""

import json
from pathlib import Path

import pytest

from quantflow.data.params import DataParams
from quantflow.data.stage import run
from quantflow.plan.text import SAMPLE_BYTES, TextSize, counted_text, estimated_text
from quantflow.source.checkpoint import Checkpoint, save_checkpoint
from tests.reporting import RecordingReporter
from tests.tiny_models import documents

TIMES_THE_SAMPLE = 4


def params(*files: Path, windows: int = 8) -> DataParams:
    return DataParams(
        files=tuple(map(str, files)),
        calibration_windows=windows,
        calibration_length=64,
        evaluation_length=64,
        calibration_share=0.3,
        selection_share=0.2,
        evaluation_share=0.5,
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


def test_a_sample_with_the_tokenizer_is_close_to_the_count(
    long_file: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    asked = params(long_file, windows=10_000)
    estimated = estimated_text(asked, tiny_llama / "tokenizer.json")
    real = counted(tiny_llama, asked, tmp_path)
    assert estimated.known_by == "sampled"
    assert real.known_by == "counted"
    for name in (
        "total_tokens",
        "calibration_windows",
        "evaluation_tokens",
        "evaluation_windows",
        "positions",
    ):
        assert getattr(estimated, name) == pytest.approx(getattr(real, name), rel=0.05), name


def test_no_more_calibration_windows_than_asked_are_expected(long_file: Path, tiny_llama: Path) -> None:
    assert estimated_text(params(long_file), tiny_llama / "tokenizer.json").calibration_windows == 8


def test_without_a_tokenizer_characters_are_counted_and_no_speed_is_known(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ["x" * 400] * 10)
    estimated = estimated_text(params(path), None)
    assert (estimated.known_by, estimated.total_tokens) == ("assumed", 1000)
    assert estimated.reading_seconds is None


def test_messages_count_with_what_a_template_puts_around_them(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "x" * 399}, {"role": "assistant", "content": "y" * 400}]
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    assert estimated_text(params(path), None).total_tokens == 200 + 10


def test_a_text_that_is_too_little_gives_no_windows(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    estimated = estimated_text(params(empty), None)
    assert (estimated.calibration_windows, estimated.positions) == (0, 0)
