"""Whether a run can fit: the memory and disk that its stages take against what there is now."""

import shutil
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from quantflow.errors import FitError
from quantflow.hardware.gpu import find_gpus, first_visible
from quantflow.hardware.memory import find_memory
from quantflow.plan.needs import Need, Needs
from quantflow.plan.size import readable

# The process itself with torch, transformers and a model's code imported, measured with a CPU build of
# torch 2.13.
PROCESS_BYTES = 520 << 20
# Part of what is available from which on a run is called tight: estimates are good to about a quarter.
TIGHT = 0.8
_REMEDIES = {
    "quantize": "Fewer or shorter calibration windows (data.calibration) take less.",
    "baseline": "Less evaluation text (data.split.evaluation) takes less.",
    "measure": "Less evaluation text (data.split.evaluation) takes less.",
}


class Room(BaseModel):
    """One resource.

    Attributes:
        what: `memory`, `GPU memory`, `disk` or `disk of the hub's cache`.
        needed: Most that is needed at once, or written in all, bytes.
        available: What there is of it now, bytes; None where the system does not say.
        stage: The stage that needs most; empty for the disk.
    """

    model_config = ConfigDict(frozen=True)

    what: str
    needed: int
    available: int | None
    stage: str = ""

    @property
    def fits(self) -> bool:
        """Whether it is enough, as far as is known."""
        return self.available is None or self.needed <= self.available

    @property
    def tight(self) -> bool:
        """Whether it is just enough."""
        return self.fits and self.available is not None and self.needed > TIGHT * self.available

    def __str__(self) -> str:
        """As a sentence without its full stop."""
        who = f"{self.stage} needs" if self.stage else "the run needs"
        of = f"{who} about {readable(self.needed)} of {self.what}"
        return of if self.available is None else f"{of}, {readable(self.available)} are available"


class Fit(BaseModel):
    """All resources of a run.

    Attributes:
        rooms: Those that anything is needed of.
        unknown: Stages whose need of memory or disk cannot be told.
    """

    model_config = ConfigDict(frozen=True)

    rooms: tuple[Room, ...]
    unknown: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether nothing that is known keeps the run from fitting."""
        return all(room.fits for room in self.rooms)


def find_fit(needs: Needs, folder: Path) -> Fit:
    """Set what the stages that have to run take against what there is.

    Args:
        needs: The recipe's stages.
        folder: Where the workspace lies.
    """
    rooms = [
        _largest("memory", needs.to_run, _host_bytes, _memory_available()),
        _largest("GPU memory", needs.to_run, lambda need: need.cost.device_bytes, _gpu_available()),
        *_disks(needs, folder),
    ]
    unknown = tuple(
        need.stage.name
        for need in needs.to_run
        if need.cost.host_bytes is None or need.cost.disk_bytes is None
    )
    return Fit(rooms=tuple(room for room in rooms if room.needed), unknown=unknown)


def require_fit(fit: Fit) -> None:
    """Refuse a run that cannot fit.

    Raises:
        FitError: A resource is too small.
    """
    missing = [room for room in fit.rooms if not room.fits]
    if missing:
        kinds = {room.stage.partition(":")[0] for room in missing}
        remedies = [text for kind, text in _REMEDIES.items() if kind in kinds]
        raise FitError(
            "the run cannot fit: " + "; ".join(str(room) for room in missing),
            hint=" ".join([*dict.fromkeys(remedies), "`--force` runs it all the same."]),
        )


def _host_bytes(need: Need) -> int:
    return 0 if need.cost.host_bytes is None else PROCESS_BYTES + need.cost.host_bytes


def _largest(what: str, needs: tuple[Need, ...], of: Callable[[Need], int], available: int | None) -> Room:
    most = max(needs, key=of, default=None)
    return Room(
        what=what,
        needed=of(most) if most else 0,
        available=available,
        stage=most.stage.name if most else "",
    )


def _memory_available() -> int | None:
    memory = find_memory()
    return memory.available if memory is not None else None


def _gpu_available() -> int | None:
    gpu = first_visible(find_gpus())
    return gpu.free if gpu is not None else None


def _disks(needs: Needs, folder: Path) -> list[Room]:
    """The workspace's disk and the hub's cache, which are often one."""
    written = sum(need.cost.disk_bytes or 0 for need in needs.to_run)
    written += max((need.cost.scratch_bytes for need in needs.to_run), default=0)
    sources = [need for need in needs.to_run if need.stage.kind == "source"]
    fetched = (needs.facts.model.download_bytes or 0) if sources else 0
    if not fetched:
        return [Room(what="disk", needed=written, available=_free(folder))]
    from huggingface_hub.constants import HF_HUB_CACHE

    cache = Path(HF_HUB_CACHE)
    if _device(cache) == _device(folder):
        return [Room(what="disk", needed=written + fetched, available=_free(folder))]
    return [
        # Another disk has no hard links to this one: the checkpoint is copied.
        Room(what="disk", needed=written + fetched, available=_free(folder)),
        Room(what="disk of the hub's cache", needed=fetched, available=_free(cache)),
    ]


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def _free(path: Path) -> int | None:
    try:
        return shutil.disk_usage(_existing(path)).free
    except OSError:
        return None


def _device(path: Path) -> int:
    return _existing(path).stat().st_dev
