"""A folder in which one thing is wrong."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.tiny_models import documents
from tests.tiny_run import RECIPE

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
SOURCE, FILES = "{source: MODEL}", "[letters.jsonl]"


@dataclass
class Ground:
    """A recipe that would run, with its letters and a model, for a case to spoil.

    Attributes:
        folder: Holds `tiny.yaml` and `letters.jsonl`; the model where the case asked for one of its own.
        shared: The tiny model that all cases read and none may change.
        packages: An empty folder that pip looks for packages in, and nowhere else.
    """

    folder: Path
    shared: Path
    packages: Path

    def __post_init__(self) -> None:
        """Write the sound recipe and its letters."""
        self.recipe.write_text(RECIPE.format(model=self.shared, max_increase=0.5, max_mean=0.5))
        lines = [json.dumps({"text": text}) for text in documents(80, seed=1)]
        (self.folder / "letters.jsonl").write_text("\n".join(lines) + "\n")

    @property
    def recipe(self) -> Path:
        """The recipe's file."""
        return self.folder / "tiny.yaml"

    def change(self, before: str, after: str) -> None:
        """Replace a piece of the recipe."""
        text = self.recipe.read_text()
        assert before in text
        self.recipe.write_text(text.replace(before, after))

    def source(self, source: str, more: str = "") -> None:
        """Let the recipe name another model; `more` is further keys of the section."""
        self.change(f"{{source: {self.shared}}}", f"{{source: '{source}'{more}}}")

    def model(self, more: str = "") -> Path:
        """A copy of the tiny model that the recipe names, to be spoilt."""
        self.source("./model", more)
        return Path(shutil.copytree(self.shared, self.folder / "model"))

    def letters(self, *lines: object) -> None:
        """Write other lines, JSON values each, in place of the letters."""
        (self.folder / "letters.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def change_json(path: Path, **changes: object) -> None:
    """Set keys of a JSON file; None removes one."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Load a checkpoint's weights, let them be changed, write them back."""
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def cut_into_shards(folder: Path) -> dict[str, str]:
    """Two shards and their index in the place of one file; returns tensor → shard."""
    weights = load_file(folder / WEIGHTS)
    names = sorted(weights)
    held = {SHARDS[0]: names[::2], SHARDS[1]: names[1::2]}
    for shard, inside in held.items():
        save_file({name: weights[name] for name in inside}, folder / shard, metadata={"format": "pt"})
    (folder / WEIGHTS).unlink()
    shard_of = {name: shard for shard, inside in held.items() for name in inside}
    write_index(folder, shard_of)
    return shard_of


def write_index(folder: Path, shard_of: dict[str, str]) -> None:
    """Write an index of shards."""
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": shard_of}))


@dataclass(frozen=True)
class Case:
    """One broken or hostile input.

    Attributes:
        name: What it is.
        spoil: Makes it of a sound ground; what it returns replaces the arguments of `quantflow`.
        message: What the complaint has to hold.
        code: The exit code: 4 for the recipe and what it asks for, 2 for the model and the text.
        where: The place that it has to name, a key of the recipe or a file of the ground with its line.
    """

    name: str
    spoil: Callable[[Ground], object]
    message: str
    code: int
    where: str = ""
