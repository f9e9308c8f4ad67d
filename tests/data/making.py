"""Running the data stage on lines of JSON, for tests of what it makes."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from quantflow.data.stage import run
from tests.data.conftest import words
from tests.data.reading import make_params
from tests.data.recording import Recorder

Lines = Iterable[dict[str, Any]]


def corpus(count: int = 140) -> list[dict[str, Any]]:
    """Documents of 2 to 31 words in two slices, every third a conversation."""
    rng = random.Random(5)
    lines: list[dict[str, Any]] = []
    for i in range(count):
        text = words(*(rng.randrange(100) for _ in range(rng.randint(2, 31))))
        chat = [{"role": "user", "content": text}, {"role": "assistant", "content": "w7"}]
        content = {"messages": chat} if i % 3 == 0 else {"text": text}
        lines.append({"id": f"d{i:03}", "slice": "orders" if i % 4 == 0 else "billing", **content})
    return lines


def write(path: Path, lines: Lines) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def make(tmp_path: Path, source: Path, lines: Lines, **changed: Any) -> tuple[Path, Recorder]:
    """Run the stage on one file of these lines."""
    output = tmp_path / f"output-{len(list(tmp_path.iterdir()))}"
    output.mkdir()
    recorder = Recorder()
    run(make_params(write(tmp_path / "all.jsonl", lines), **changed), {"source": source}, output, recorder)
    return output, recorder


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
