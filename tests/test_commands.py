"""The commands beside `run` as a user has them: what they print, their exit codes, what they leave alone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import quantflow
from quantflow.commands import doctor as doctor_command
from quantflow.doctor.examine import Examination
from quantflow.doctor.finding import Finding
from quantflow.errors import RecipeError
from quantflow.hardware.memory import Memory
from quantflow.plan import fit, make
from quantflow.plan.size import parse_size, readable
from tests.plan.test_plan import SPEED
from tests.test_run import Command
from tests.tiny_run import write_recipe


@pytest.fixture(scope="module")
def finished(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    quantflow.run(quantflow.load_recipe(write_recipe(folder, tiny_llama)), folder=folder)
    return folder


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in a folder with the tiny recipe, on a machine whose speed is known and that is quiet."""
    monkeypatch.setattr(make, "find_speed", lambda workspace, device, on_measure: SPEED)
    monkeypatch.setattr(make, "machine_is_busy", lambda: False)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "work").mkdir()
    return Command(tmp_path / "work", capsys, monkeypatch)


@pytest.fixture
def again(command: Command, finished: Path) -> Command:
    """The same in a copy of a folder where the recipe has run."""
    shutil.copytree(finished, command.folder, dirs_exist_ok=True)
    for link in command.folder.glob("artifacts/tiny/int4/*"):  # copies are no hard links any more
        (stored,) = command.folder.glob(f".quantflow/store/assemble/*/artifact/{link.name}")
        link.unlink()
        os.link(stored, link)
    return command


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "find_memory", lambda: Memory(10**9, 100_000_000, None, 0))


def test_plan_names_every_stage_and_runs_none(command: Command, tiny_llama: Path) -> None:
    write_recipe(command.folder, tiny_llama)
    assert command("plan", "tiny.yaml") == 0
    for stage in (
        "source",
        "data",
        "baseline",
        "quantize",
        "assemble:int4",
        "yardstick:int4",
        "measure:int4",
        "gate:int4",
    ):
        assert stage in command.out
    assert "to run: never run" in command.out
    assert "work counted, over the measured speed of this machine" in command.out
    assert not (command.folder / ".quantflow" / "store").exists()
    assert not (command.folder / "reports").exists()


def test_plan_after_a_run_says_that_all_is_there(again: Command) -> None:
    assert again("plan", "tiny.yaml") == 0
    assert "Everything is in the store" in again.out


def test_plan_says_why_a_stage_runs_again(again: Command) -> None:
    assert again("plan", "tiny.yaml", "--set", "data.calibration.windows=4") == 0
    assert "parameter calibration_windows: 8 → 4" in again.out
    assert "input quantize" in again.out


def test_plan_as_json_is_json_and_nothing_else(again: Command) -> None:
    assert again("plan", "tiny.yaml", "--json") == 0
    told = json.loads(again.out)
    assert told["recipe"] == "tiny"
    assert all(stage["cached"] for stage in told["stages"])


def test_plan_of_a_run_that_cannot_fit_is_exit_code_2(
    command: Command, tiny_llama: Path, little_memory: None
) -> None:
    write_recipe(command.folder, tiny_llama)
    assert command("plan", "tiny.yaml") == 2
    assert "of 100 MB available: cannot fit" in command.out
    assert "--force" in command.out


def test_a_run_that_cannot_fit_is_refused_before_anything_runs(
    command: Command, tiny_llama: Path, little_memory: None
) -> None:
    write_recipe(command.folder, tiny_llama)
    assert command("run", "tiny.yaml") == 2
    assert "the run cannot fit" in command.err
    assert "100 MB are available" in command.err
    assert "started" not in command.err
    assert not (command.folder / "reports").exists()
    assert command("runs") == 0
    assert "failed" in command.out


def test_force_runs_it_all_the_same_and_says_so(
    command: Command, tiny_llama: Path, little_memory: None
) -> None:
    write_recipe(command.folder, tiny_llama)
    assert command("run", "tiny.yaml", "--force") == 0
    assert "Running all the same, as --force says" in command.err


def test_what_is_in_the_store_runs_however_little_memory_there_is(
    again: Command, little_memory: None
) -> None:
    assert again("run", "tiny.yaml") == 0


def test_a_full_disk_is_refused(command: Command, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "_free", lambda path: 1_000)
    write_recipe(command.folder, tiny_llama)
    assert command("run", "tiny.yaml") == 2
    assert "of disk, 1.0 kB are available" in command.err


def test_runs_lists_verdicts_with_their_reports(again: Command) -> None:
    assert again("run", "tiny.yaml", "--set", "gate.kl.max_mean=0") == 1
    assert again("runs") == 0
    assert again.out.index("pass") < again.out.index("fail")
    assert again.out.count("report.html") == 2
    assert again("runs", "--json") == 0
    first, second = json.loads(again.out)
    assert (first["verdict"], second["verdict"], second["exit_code"]) == ("pass", "fail", 1)
    assert (again.folder / second["report"] / "report.json").is_file()
    assert second["seconds"] > 0


def test_a_report_that_was_deleted_is_said_to_be(again: Command) -> None:
    shutil.rmtree(again.folder / "reports")
    assert again("runs") == 0
    assert "(removed)" in again.out


def test_errors_and_interrupts_are_listed_with_their_reason(
    again: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("quantflow.pipeline.run.run_stages", interrupted)
    assert again("run", "tiny.yaml") == 2
    monkeypatch.undo()
    assert again("run", "tiny.yaml", "--set", "artifacts.0.group_size=128") == 4
    assert again("runs", "--json") == 0
    *_, interrupt, refusal = json.loads(again.out)
    assert interrupt["status"] == "interrupted"
    assert (refusal["status"], refusal["exit_code"]) == ("failed", 4)
    assert "does not divide" in refusal["reason"]


def test_a_run_that_was_killed_shows_as_died(again: Command) -> None:
    script = (
        "import os, sys; from quantflow.pipeline import run\n"
        "run.run_stages = lambda *args, **kwargs: os.kill(os.getpid(), 9)\n"
        "from quantflow.cli import main; main()"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(quantflow.__file__).parents[1])}
    command = [sys.executable, "-c", script, "run", "tiny.yaml"]
    killed = subprocess.run(command, cwd=again.folder, env=environment, capture_output=True, timeout=60)
    assert killed.returncode == -9
    assert again("runs") == 0
    assert "died" in again.out


def test_runs_of_an_empty_folder(command: Command) -> None:
    assert command("runs") == 0
    assert "No runs" in command.out
    assert command("runs", "--json") == 0
    assert json.loads(command.out) == []
    assert not (command.folder / ".quantflow").exists()


def test_clean_frees_the_store_and_leaves_artifact_and_reports(again: Command) -> None:
    artifact = again.folder / "artifacts" / "tiny" / "int4"
    before = {path.name: path.read_bytes() for path in artifact.iterdir()}
    assert again("clean", "--keep", "0") == 0
    assert "freed" in again.out
    assert "shared" in again.out
    assert {path.name: path.read_bytes() for path in artifact.iterdir()} == before
    assert list(again.folder.glob("reports/tiny/*/report.html"))
    assert not list(again.folder.glob(".quantflow/store/*/*/manifest.json"))
    assert again("run", "tiny.yaml") == 0
    assert again.err.count("done in") == 11


def test_a_dry_run_removes_nothing(again: Command) -> None:
    assert again("clean", "--keep", "0", "--dry-run", "--json") == 0
    assert len(json.loads(again.out)["removed"]) == 11
    assert len(list(again.folder.glob(".quantflow/store/*/*/manifest.json"))) == 11


def test_what_was_used_lately_is_not_old(again: Command) -> None:
    assert again("clean", "--older-than", "1h") == 0
    assert "11 stored results stay" in again.out


@pytest.mark.parametrize(
    "arguments", [(), ("--keep", "much"), ("--older-than", "30"), ("--keep", "20GB", "--older-than", "soon")]
)
def test_clean_without_a_sensible_limit_is_exit_code_4(again: Command, arguments: tuple[str, ...]) -> None:
    assert again("clean", *arguments) == 4
    assert "Write" in again.err or "--older-than 30d" in again.err


def test_doctor_says_what_it_found_and_its_exit_code_says_whether_it_is_broken(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for level, code in (("fine", 0), ("note", 0), ("broken", 2)):
        finding = Finding(level=level, topic="torch", text="[what] it is")  # type: ignore[arg-type]
        found = Examination(findings=(finding,), advice={"INT8": "Fast."}, machine={})
        monkeypatch.setattr(doctor_command, "examine", lambda folder, found=found: found)
        assert command("doctor") == code
        assert "torch: [what] it is" in command.out
        assert "INT8: Fast." in command.out
    assert command("doctor", "--json") == 2
    assert json.loads(command.out)["findings"][0]["level"] == "broken"


def test_sizes_are_read_as_people_write_them() -> None:
    assert [parse_size(text, "--keep") for text in ("20GB", "1.5 TiB", "500mb", "0", "12")] == [
        20 * 10**9,
        round(1.5 * 2**40),
        500 * 10**6,
        0,
        12,
    ]
    assert [readable(size) for size in (12, 1_400, 26e9, 9.96e9, 999_999)] == [
        "12 bytes",
        "1.4 kB",
        "26 GB",
        "10.0 GB",
        "1000 kB",
    ]
    with pytest.raises(RecipeError):
        parse_size("-1", "--keep")
