"""A full disk, a folder that may not be written, a share that goes away: said plainly, nothing half-written,
and the same command goes on to the same bytes."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import quantflow
from quantflow.pipeline.store import Store
from tests.test_interruption import artifact_bytes, results
from tests.tiny_run import ENVIRONMENT, write_recipe

MAIN = "from quantflow.cli import main; main()"
# Steps between the moments of a cold run at which the slow test lets the disk fill up.
STRIDE = 7
# Openings of the weights' file after which the tiny model's first block is quantized, and the last is not.
OPENED = 50


def command(
    folder: Path,
    *arguments: str,
    fault: str = "",
    stdout: int | None = None,
) -> tuple[int, str]:
    """Run `quantflow` as a process of its own; its exit code and what it says on standard error."""
    code = f"from tests import faults; faults.{fault}; {MAIN}" if fault else MAIN
    done = subprocess.run(
        [sys.executable, "-c", code, *(arguments or ("run", "tiny.yaml"))],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=stdout or subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "This is a bug" not in done.stderr, done.stderr
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def finished(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    write_recipe(folder, tiny_llama)
    quantflow.run(quantflow.load_recipe(folder / "tiny.yaml"), folder=folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy of a folder in which the recipe has run."""
    return Path(shutil.copytree(finished, tmp_path / "work"))


def forget(folder: Path, *kinds: str) -> None:
    """Remove what the store has of stages, so that they run."""
    for kind in kinds:
        shutil.rmtree(folder / ".quantflow" / "store" / kind)


def assert_nothing_is_half_written(folder: Path) -> None:
    store = Store(folder / ".quantflow" / "store")
    for path, manifest in store.objects():
        assert manifest is not None, path
        assert store.find(manifest.stage, manifest.key, verify=True) is not None, path
    for report in folder.glob("reports/tiny/*"):
        assert sorted(path.name for path in report.iterdir()) == ["report.html", "report.json"]
    for artifact in folder.glob("artifacts/tiny/*"):
        content = json.loads((artifact / "quantflow.json").read_text())["files"]
        assert {path.name for path in artifact.iterdir()} == {*content, "quantflow.json"}


def assert_it_goes_on(folder: Path, finished: Path) -> None:
    code, said = command(folder)
    assert code == 0, said
    assert artifact_bytes(folder) == artifact_bytes(finished)
    assert results(folder) == results(finished)
    assert not list((folder / ".quantflow" / "store" / "partial").iterdir())


@pytest.mark.parametrize(
    ("stages", "full", "said"),
    [
        (["gate"], "partial/.*/gate.json", "the disk is full"),
        (["assemble"], "partial/.*/model.safetensors", "the disk is full"),
        (["gate"], "partial/.*/manifest.json", "the disk is full"),
        ([], "report.html", "the report cannot be written: No space left"),
        ([], "quantflow/runs/", "the record of the run cannot be written: No space left"),
    ],
)
def test_a_full_disk(folder: Path, finished: Path, stages: list[str], full: str, said: str) -> None:
    forget(folder, *stages)
    if stages:
        shutil.rmtree(folder / "artifacts")
    code, heard = command(folder, fault=f"fill_disk({full!r})")
    assert code == 2
    assert said in heard
    assert str(folder) in heard
    assert "Make room there" in heard
    assert "give the same command again" in heard
    assert_nothing_is_half_written(folder)
    assert_it_goes_on(folder, finished)


def test_a_disk_too_full_for_progress_is_an_event_and_the_run_goes_on(folder: Path, finished: Path) -> None:
    forget(folder, "measure")
    code, heard = command(folder, fault="fill_disk('/progress/')")
    assert code == 0
    assert heard.count("event progress-not-kept") == 1
    newest = max(folder.glob("reports/tiny/*/report.json"), key=lambda path: path.stat().st_mtime_ns)
    events = json.loads(newest.read_text())["events"]
    assert [event["stage"] for event in events if event["code"] == "progress-not-kept"] == ["measure:int4"]
    assert_it_goes_on(folder, finished)  # and it is of that run alone, not of the result


@pytest.mark.slow
def test_a_disk_that_is_full_from_any_moment_on(tiny_llama: Path, tmp_path: Path, finished: Path) -> None:
    moment, code = 1, 2
    while code != 0:
        work = tmp_path / str(moment)
        write_recipe(work, tiny_llama)
        code, heard = command(work, fault=f"fill_disk_for_good({moment})")
        assert code == 2 or moment > 30, heard
        assert code == 0 or "No space left on device" in heard
        assert_nothing_is_half_written(work)
        assert_it_goes_on(work, finished)
        moment += STRIDE


@pytest.mark.parametrize("code", [errno.ESTALE, errno.ENOENT])
def test_a_share_that_goes_away_while_weights_are_read(
    folder: Path, finished: Path, tiny_llama: Path, code: int
) -> None:
    forget(folder, "quantize", "assemble", "measure", "gate")
    ended, heard = command(folder, fault=f"lose_share('{tiny_llama}/model', {OPENED}, {code})")
    assert ended == 2
    assert "model.safetensors" in heard
    assert os.strerror(code) in heard
    assert "give the same command again" in heard
    assert_nothing_is_half_written(folder)
    # The blocks that were quantized before are not quantized again.
    assert list(folder.glob(".quantflow/store/partial/*/output/codes/*/*.safetensors"))
    assert_it_goes_on(folder, finished)


@pytest.mark.parametrize("code", [errno.ESTALE, errno.ENOENT])
def test_a_share_that_goes_away_while_data_is_read(folder: Path, finished: Path, code: int) -> None:
    forget(folder, "data")
    ended, heard = command(folder, fault=f"lose_share('letters.jsonl', 1, {code})")
    assert ended == 2
    assert "letters.jsonl" in heard
    assert os.strerror(code) in heard
    assert "give the same command again" in heard
    assert_it_goes_on(folder, finished)


def close(path: Path) -> None:
    for inside in (path, *(p for p in path.rglob("*") if p.is_dir())):
        inside.chmod(0o555)


def reopen(path: Path) -> None:
    path.chmod(0o755)
    for inside in path.rglob("*"):
        if inside.is_dir():
            inside.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "stages"),
    [(".quantflow", ()), (".quantflow/store", ("gate",)), ("artifacts", ()), ("reports", ())],
)
def test_a_folder_that_may_not_be_written(
    folder: Path, finished: Path, name: str, stages: tuple[str, ...]
) -> None:
    forget(folder, *stages)
    if name == "artifacts":  # the artifact has to be put there anew
        shutil.rmtree(folder / name / "tiny")
    close(folder / name)
    code, heard = command(folder, fault="obey_permissions()")
    assert code == 2
    assert str(folder / name) in heard
    assert "Permission denied" in heard
    assert "Mend the permissions" in heard
    reopen(folder / name)
    assert_nothing_is_half_written(folder)
    assert_it_goes_on(folder, finished)


def test_standard_output_that_cannot_be_written_is_no_bug_of_ours(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        code, heard = command(folder, stdout=full.fileno())
        assert code == 2
        assert "could not write to standard output: No space left" in heard
        assert command(folder, "schema", stdout=full.fileno())[0] == 2


def test_a_log_that_cannot_be_written_does_not_end_the_run(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "run", "tiny.yaml"],
            cwd=folder,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
        )
    assert "PASS" in done.stdout
    assert done.returncode == 0
