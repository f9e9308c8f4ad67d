"""Stages small enough to see through: they count their runs in a file beside the store."""

import errno
from collections.abc import Mapping
from pathlib import Path

from quantflow.errors import DataError
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.stage import StageParams


class ToyParams(StageParams):
    text: str
    log: str


def write(params: ToyParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    with Path(params.log).open("a") as log:
        log.write(f"{params.text}\n")
    before = "".join((folder / "text.txt").read_text() for _, folder in sorted(inputs.items()))
    reporter.event("toy-event", f"wrote {params.text}", length=len(params.text))
    with reporter.track("letters", len(params.text)) as advance:
        for _ in params.text:
            advance(1)
    (output / "text.txt").write_text(before + params.text)


def refuse(params: ToyParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    (output / "half.txt").write_text("half")
    raise DataError("this is not what I expected", where="toy.txt:3")


def crash(params: ToyParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    (output / "half.txt").write_text("half")
    raise ZeroDivisionError


def fill_the_disk(params: ToyParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    raise OSError(28, "No space left on device", "somewhere/model.safetensors")


def letter_by_letter(params: ToyParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Interrupts itself half-way, the first time it comes there."""
    reporter.event("begun", "at the beginning")
    path, mark = output / "text.txt", reporter.progress_folder / "interrupted"
    done = path.read_text() if path.exists() else ""
    for letter in params.text[len(done) :]:
        if len(done) == len(params.text) // 2 and not mark.exists():
            mark.touch()
            reporter.event("halfway", "at half the letters")
            raise KeyboardInterrupt
        with Path(params.log).open("a") as log:
            log.write(f"{letter}\n")
        done += letter
        path.write_text(done)


def lose_the_share(params: ToyParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Keeps progress, then finds the model's share gone, unless it was there before."""
    mark = reporter.progress_folder / "half"
    if not mark.exists():
        mark.touch()
        raise DataError("cannot be read", where="model") from OSError(errno.ESTALE, "Stale file handle")
    (output / "text.txt").write_text("went on")


def find_a_mistake(params: ToyParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    (reporter.progress_folder / "half").touch()
    raise DataError("this is nonsense")


def keep_what_cannot_be_kept(
    params: ToyParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter
) -> None:
    def write() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    kept = [reporter.keep(write) for _ in range(3)]
    kept.append(reporter.keep((reporter.progress_folder / "small").touch))
    (output / "text.txt").write_text(str(kept))
