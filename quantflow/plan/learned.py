"""What stored stages really took, set against what counting says, to correct it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from quantflow.errors import QuantFlowError
from quantflow.pipeline.store import MANIFEST, Manifest, Store
from quantflow.plan.costs import Facts, cost_of, stored_params
from quantflow.plan.model import find_model
from quantflow.plan.speed import Speed
from quantflow.plan.text import counted_text
from quantflow.plan.work import Cost
from quantflow.source.checkpoint import load_checkpoint
from quantflow.source.uri import SourceRef

# The newest objects of a kind that are learned from: enough for one odd one not to count.
NEWEST = 5
# Seconds below which a stage is mostly overhead and teaches nothing about larger ones.
LEAST_SECONDS = 1.0


@dataclass(frozen=True)
class Past:
    """A stored stage and what it would have been expected to take.

    Attributes:
        function: Of the stage.
        manifest: Of the object; `usage` is there.
        cost: Counted from the model and text that it really had.
    """

    function: str
    manifest: Manifest
    cost: Cost


def past_stages(store: Store) -> Iterator[Past]:
    """Stored stages that recorded what they took and whose cost can be counted, the newest first."""
    objects = [(folder, manifest) for folder, manifest in store.objects() if manifest is not None]
    folders = {manifest.key: folder for folder, manifest in objects}
    for folder, manifest in sorted(objects, key=lambda pair: -_written(pair[0])):
        function = str(manifest.made_from["function"])
        params = stored_params(function, manifest.made_from["params"])  # type: ignore[arg-type]
        if manifest.usage is None or manifest.usage.resumed or params is None:
            continue
        facts = _facts(manifest, folder, folders)
        if facts is not None:
            yield Past(function, manifest, cost_of(function, params, facts))


def _written(folder: Path) -> float:
    """When an object was made; the manifest's own time says when it was last of use."""
    return max((path.stat().st_mtime for path in folder.rglob("*") if path.name != MANIFEST), default=0.0)


def _facts(manifest: Manifest, folder: Path, folders: Mapping[str, Path]) -> Facts | None:
    """Model and text of a stored stage, from its inputs in the store."""
    inputs = manifest.made_from["inputs"]
    assert isinstance(inputs, dict)
    source = folder if manifest.stage == "source" else folders.get(str(inputs.get("source")))
    data = folder if manifest.stage == "data" else folders.get(str(inputs.get("data")))
    try:
        if source is None:
            return None
        checkpoint = load_checkpoint(source)
        if manifest.stage == "source" and checkpoint.kind == "hub":
            return None  # its time was the network's
        ref = SourceRef(checkpoint.kind, checkpoint.uri)  # type: ignore[arg-type]
        return Facts(find_model(ref, None, source), counted_text(data) if data is not None else None)
    except (QuantFlowError, OSError, ValueError, KeyError):
        return None


@dataclass(frozen=True)
class Lesson:
    """How much longer a kind of stage takes here than counting says.

    Attributes:
        ratio: Recorded by counted seconds.
        stages: Stored stages that say so.
    """

    ratio: float
    stages: int


def learn(past: Sequence[Past], speed: Speed) -> dict[str, Lesson]:
    """Lessons by stage function, from stages computed on this very machine.

    Args:
        past: Stored stages, the newest first.
        speed: Of this machine.
    """
    ratios: dict[str, list[float]] = defaultdict(list)
    for stage in past:
        usage, work = stage.manifest.usage, stage.cost.work
        if usage is None or work is None or usage.computed_on != speed.machine:
            continue
        counted = speed.seconds(work)
        if min(counted, stage.manifest.seconds) >= LEAST_SECONDS:
            ratios[stage.function].append(stage.manifest.seconds / counted)
    return {name: Lesson(median(found[:NEWEST]), len(found[:NEWEST])) for name, found in ratios.items()}
