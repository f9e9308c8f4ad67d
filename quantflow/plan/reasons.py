"""Why a stage has to run: what of its key differs from the nearest object in the store."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from quantflow.pipeline.stage import Stage
from quantflow.pipeline.store import Manifest

Cause = Literal[
    "never run",
    "made by",
    "measured again",
    "damaged",
    "input",
    "parameter",
    "data",
    "code",
    "library",
    "device",
    "format",
]
# Parameters of the source that stand for content, not for a choice.
CONTENT = ("identity", "files")
# Which artifact an object was made for; another one's says more about itself than about this one.
OF_ARTIFACT = ("artifact", "name")
_HEX = frozenset("0123456789abcdef")


class Reason(BaseModel):
    """One difference.

    Attributes:
        cause: Its kind.
        what: What differs: a parameter, a library, a file, an input.
        before: As the nearest stored object has it; None where it has none or would say nothing to a reader.
        now: As the recipe, the code and the machine have it now.
    """

    model_config = ConfigDict(frozen=True)

    cause: Cause
    what: str = ""
    before: JsonValue = None
    now: JsonValue = None

    def __str__(self) -> str:
        """As a phrase, e.g. `parameter group_size: 64 → 128`."""
        phrase = f"{self.cause} {self.what}".rstrip()
        if self.before is None and self.now is None:
            return phrase
        return f"{phrase}: {_shown(self.before)} → {_shown(self.now)}"


def reasons(stage: Stage, made: Mapping[str, JsonValue], stored: Sequence[Manifest]) -> tuple[Reason, ...]:
    """What differs from the object that differs least.

    Args:
        stage: The stage.
        made: What its key was computed from.
        stored: Objects of its kind.
    """
    candidates = [manifest.made_from for manifest in stored if _same_artifact(made, manifest.made_from)]
    if not candidates:
        return (Reason(cause="never run"),)
    return min((tuple(_differences(stage, made, other)) for other in candidates), key=len)


def _same_artifact(made: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(made["params"].get(key) == other["params"].get(key) for key in OF_ARTIFACT)


def _differences(stage: Stage, made: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Reason]:
    if made["version"] != other["version"]:
        yield Reason(cause="format", what="of the store", before=other["version"], now=made["version"])
    for role, key in made["inputs"].items():
        if other["inputs"].get(role) != key:
            yield Reason(cause="input", what=stage.inputs[role])
    content = False
    for name in sorted({*made["params"], *other["params"]}):
        before, now = other["params"].get(name), made["params"].get(name)
        if before == now or (name == "device" and made["machine"]):  # the machine says it, too
            continue
        if name in CONTENT or _is_content(before) or _is_content(now):
            content = True
        else:
            yield Reason(cause="parameter", what=name, before=before, now=now)
    changed = sorted(set(made["external"]) ^ set(other["external"]))
    if content or changed:
        names = sorted({entry.partition(" ")[2] for entry in changed})
        yield Reason(cause="data", what=", ".join(names))
    if made["function"] != other["function"] or made["code"] != other["code"]:
        yield Reason(cause="code", what="of the stage")
    for name in sorted({*made["libraries"], *other["libraries"]}):
        before, now = other["libraries"].get(name), made["libraries"].get(name)
        if before != now:
            yield Reason(cause="library", what=name, before=before, now=now)
    yield from _machine_differences(made["machine"] or {}, other["machine"] or {})


def _machine_differences(made: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Reason]:
    for name in sorted({*made, *other}):
        if made.get(name) != other.get(name):
            yield Reason(cause="device", what=name, before=other.get(name), now=made.get(name))


def _is_content(value: object) -> bool:
    """Whether a parameter holds files, which the key replaces by `<sha256> <name>`."""
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(
        isinstance(item, str) and len(item) > 64 and item[64] == " " and set(item[:64]) <= _HEX
        for item in values
    )


def _shown(value: JsonValue) -> str:
    if value is None:
        return "none"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
