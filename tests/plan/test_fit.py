"""A run that cannot fit is told so by what is missing; one that just fits is told, too."""

from pathlib import Path

import pytest

from quantflow.errors import FitError
from quantflow.hardware.gpu import Gpu
from quantflow.hardware.memory import Memory
from quantflow.pipeline.stage import Stage, StageParams
from quantflow.plan import fit as fit_module
from quantflow.plan.costs import Facts
from quantflow.plan.fit import PROCESS_BYTES, find_fit, require_fit
from quantflow.plan.model import PlannedModel
from quantflow.plan.needs import Need, Needs
from quantflow.plan.work import Cost

GB = 10**9


def need(name: str, cost: Cost, *, cached: bool = False) -> Need:
    stage = Stage(name=name, function="m:f", params=StageParams())
    return Need(stage, "k", Path() if cached else None, (), cost)


def needs(*stages: Need, download: int = 0) -> Needs:
    return Needs(Facts(PlannedModel("folder", download_bytes=download)), stages)


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 GB of memory, a GPU with 8 GB free, 100 GB of disk."""
    monkeypatch.setattr(fit_module, "find_memory", lambda: Memory(16 * GB, 10 * GB, None, 0))
    monkeypatch.setattr(fit_module, "_gpu_available", lambda: 8 * GB)
    monkeypatch.setattr(fit_module, "_free", lambda path: 100 * GB)


def test_the_largest_stage_and_the_process_itself_decide_over_memory(tmp_path: Path) -> None:
    stages = (need("baseline", Cost(None, 2 * GB)), need("quantize:a", Cost(None, 3 * GB)))
    (memory,) = find_fit(needs(*stages), tmp_path).rooms
    assert (memory.needed, memory.stage) == (3 * GB + PROCESS_BYTES, "quantize:a")
    assert memory.fits
    assert not memory.tight


def test_what_is_in_the_store_needs_nothing(tmp_path: Path) -> None:
    assert find_fit(needs(need("quantize:a", Cost(None, 300 * GB), cached=True)), tmp_path).rooms == ()


def test_too_little_memory_is_refused_with_sizes_stage_and_remedy(tmp_path: Path) -> None:
    fit = find_fit(needs(need("quantize:a", Cost(None, 30 * GB))), tmp_path)
    assert not fit.fits
    with pytest.raises(FitError) as caught:
        require_fit(fit)
    assert "quantize:a needs about 31 GB of memory, 10 GB are available" in str(caught.value)
    assert "data.calibration" in caught.value.hint
    assert "--force" in caught.value.hint
    assert caught.value.exit_code == 2


def test_disk_adds_up_over_stages(tmp_path: Path) -> None:
    stages = [need(f"assemble:{name}", Cost(None, 0, disk_bytes=60 * GB)) for name in "ab"]
    with pytest.raises(FitError, match="the run needs about 120 GB of disk, 100 GB are available"):
        require_fit(find_fit(needs(*stages), tmp_path))


def test_a_download_counts_while_the_source_is_not_there(tmp_path: Path) -> None:
    source = need("source", Cost(None, 0, disk_bytes=0))
    assert not find_fit(needs(source, download=150 * GB), tmp_path).fits
    cached = need("source", Cost(None, 0, disk_bytes=0), cached=True)
    assert find_fit(needs(cached, download=150 * GB), tmp_path).fits


def test_a_gpu_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FitError, match="of GPU memory"):
        require_fit(find_fit(needs(need("baseline", Cost(None, 0, device_bytes=9 * GB))), tmp_path))


def test_just_enough_is_tight(tmp_path: Path) -> None:
    fit = find_fit(needs(need("baseline", Cost(None, 9 * GB - PROCESS_BYTES))), tmp_path)
    assert fit.fits
    assert fit.rooms[0].tight


def test_what_is_unknown_is_named_and_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = find_fit(needs(need("quantize:a", Cost(unknown="the wheel"))), tmp_path)
    assert fit.unknown == ("quantize:a",)
    require_fit(fit)
    monkeypatch.setattr(fit_module, "find_memory", lambda: None)
    require_fit(find_fit(needs(need("quantize:a", Cost(None, 900 * GB))), tmp_path))


def test_the_gpu_that_torch_sees_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(fit_module, "first_visible", lambda gpus: Gpu("G", 16 * GB, 12 * GB, (9, 0)))
    assert fit_module._gpu_available() == 12 * GB
