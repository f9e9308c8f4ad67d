"""Items of tasks that stand in calibration text: leakage.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

LEAKAGE_FILE = "leakage.json"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LeakedItem(_Value):
    """An item that calibration text has.

    Attributes:
        item: Task and place in it.
        document: Id of a calibration document that has it.
        how: `passage`, word for word, or `near`, the document is nearly the same as the item.
    """

    item: str
    document: str
    how: Literal["passage", "near"]


class TaskLeakage(_Value):
    """One task.

    Attributes:
        items: Items that were run.
        leaked: Those that calibration text has.
        passages: Of them, those of which it has a passage word for word.
        shown: Some of them.
    """

    items: int
    leaked: int
    passages: int
    shown: tuple[LeakedItem, ...] = ()


def save_leakage(output: Path, tasks: Mapping[str, TaskLeakage]) -> None:
    """Write leakage.json."""
    content = {name: found.model_dump(mode="json") for name, found in tasks.items()}
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
    (output / LEAKAGE_FILE).write_text(text + "\n", encoding="utf-8")


def load_leakage(stage_output: Path) -> dict[str, TaskLeakage]:
    """Read what the leakage stage wrote, by the tasks' names."""
    content = json.loads((stage_output / LEAKAGE_FILE).read_text(encoding="utf-8"))
    return {name: TaskLeakage.model_validate_json(json.dumps(found)) for name, found in content.items()}
