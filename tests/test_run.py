"""The product as a user has it: the command, its exit code, and what lies on disk afterwards."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import quantflow
from quantflow.cli import _exit_code
from quantflow.errors import QuantizationError
from quantflow.pipeline import digest
from tests.tiny_run import ENVIRONMENT, write_recipe


@dataclass
class Command:
    """The `quantflow` command in a folder of its own, in this process."""

    folder: Path
    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch
    out: str = ""
    err: str = ""

    def __call__(self, *arguments: str) -> int:
        self.patch.chdir(self.folder)
        self.patch.setattr(sys, "argv", ["quantflow", *arguments])
        code = _exit_code()
        self.out, self.err = self.capture.readouterr()
        assert "Traceback" not in self.out + self.err
        return code


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    (tmp_path / "work").mkdir()
    yield Command(tmp_path / "work", capsys, monkeypatch)


@pytest.fixture(scope="module")
def finished(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the tiny recipe has run once."""
    folder = tmp_path_factory.mktemp("finished")
    quantflow.run(quantflow.load_recipe(write_recipe(folder, tiny_llama)), folder=folder)
    return folder


@pytest.fixture
def again(finished: Path, command: Command) -> Command:
    """The command in a copy of that folder."""
    shutil.copytree(finished, command.folder, dirs_exist_ok=True)
    return command


def reports(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("reports/tiny/*/report.json"))]


def test_a_run_ends_with_a_verdict_a_report_and_an_artifact(command: Command, tiny_llama: Path) -> None:
    write_recipe(command.folder, tiny_llama)
    assert command("run", "tiny.yaml") == 0
    assert "PASS" in command.out
    assert "perplexity" in command.out
    assert "report.html" in command.out
    (report,) = reports(command.folder)
    assert report["verdict"] == "pass"
    assert report["exit_code"] == 0
    (made,) = report["artifacts"]
    where = [position["document"] for position in made["divergence"]["worst"]]
    assert len(made["contexts"]) == len(where) == len(set(where)) > 1
    for position, context in zip(made["divergence"]["worst"], made["contexts"], strict=True):
        assert context["before"] and context["came"]
        assert (context["baseline"] == context["artifact"]) == position["same_top1"]
    artifact = command.folder / "artifacts" / "tiny" / "int4"
    assert (artifact / "config.json").is_file()
    assert (artifact / "quantflow.json").is_file()
    assert "[11/11] gate:int4: done" in command.err


def test_margins_that_cannot_be_met_fail_with_exit_code_1(again: Command) -> None:
    assert again("run", "tiny.yaml", "--set", "gate.kl.max_mean=0") == 1
    assert "FAIL" in again.out
    # Everything but the gate was there already.
    assert again.err.count(": from the store") == 10
    assert again.err.count("done in") == 1


def test_too_few_documents_are_inconclusive_with_exit_code_3(command: Command, tiny_llama: Path) -> None:
    write_recipe(command.folder, tiny_llama, letters=40)
    assert command("run", "tiny.yaml") == 3
    assert "INCONCLUSIVE" in command.out


def test_a_recipe_mistake_is_exit_code_4_and_names_line_and_key(command: Command, tiny_llama: Path) -> None:
    path = write_recipe(command.folder, tiny_llama)
    path.write_text(path.read_text().replace("group_size", "groupsize"))
    assert command("run", "tiny.yaml") == 4
    assert "tiny.yaml:10" in command.err
    assert "group_size" in command.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("run", "absent.yaml"),
        ("rnu", "x.yaml"),
        ("run", "x.yaml", "--jsn"),
        ("run", "x.yaml", "--set"),
    ],
)
def test_wrong_usage_is_exit_code_4(command: Command, arguments: tuple[str, ...]) -> None:
    assert command(*arguments) == 4
    assert command.err


def test_a_model_that_does_not_fit_the_group_size_is_refused_before_it_runs(again: Command) -> None:
    path = again.folder / "tiny.yaml"
    path.write_text(path.read_text().replace("group_size: 32", "group_size: 128"))
    assert again("run", "tiny.yaml") == 4
    assert "tiny.yaml:10: artifacts[0].group_size: group_size 128 does not divide the 64" in again.err
    assert "baseline" not in again.err


def test_a_damaged_source_is_an_error_that_keeps_the_verdict_from_passing(
    again: Command, tiny_llama: Path
) -> None:
    broken = again.folder / "model"
    shutil.copytree(tiny_llama, broken)
    weights = broken / "model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes()[:-100])
    path = again.folder / "tiny.yaml"
    path.write_text(path.read_text().replace(str(tiny_llama), "model"))
    assert again("run", "tiny.yaml") == 2
    assert "model.safetensors" in again.err
    assert reports(again.folder)[-1]["verdict"] == "error"


def test_a_run_that_could_not_do_all_does_not_pass_although_its_artifacts_do(
    again: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (measured,) = again.folder.glob(".quantflow/store/yardstick/*")
    shutil.rmtree(measured)

    def failing(*args: object) -> None:
        raise QuantizationError("the rounded model's logits are not finite numbers")

    monkeypatch.setattr("quantflow.measure.yardstick.run", failing)
    assert again("run", "tiny.yaml") == 2
    report = reports(again.folder)[-1]
    assert (report["verdict"], report["exit_code"]) == ("error", 2)
    assert str(report["reason"]).startswith("yardstick:int4: the rounded model's logits")
    artifacts: Any = report["artifacts"]
    assert [artifact["verdict"] for artifact in artifacts] == ["pass"]


def test_an_unchanged_run_reports_anew_without_importing_torch(again: Command) -> None:
    script = "import sys; from quantflow.cli import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, "run", "tiny.yaml"],
        cwd=again.folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(": from the store") == 11, done.stderr
    assert done.stdout.splitlines()[-1] == "False"
    first, second = reports(again.folder)
    assert first["run_id"] != second["run_id"]
    for key in ("criteria", "artifacts", "baseline", "data", "events", "verdict"):
        assert first[key] == second[key]


def test_a_damaged_artifact_in_the_store_is_noticed_and_made_again(again: Command) -> None:
    (weights,) = again.folder.glob(".quantflow/store/assemble/*/artifact/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.chmod(0o644)
    weights.write_bytes(bytes(content))
    assert again("run", "tiny.yaml") == 0
    assert "stored-output-damaged" in again.err
    content[-1] ^= 1
    assert (again.folder / "artifacts" / "tiny" / "int4" / "model.safetensors").read_bytes() == bytes(content)


def test_a_model_that_changes_during_the_run_is_noticed_and_nothing_is_kept_of_it(
    command: Command, tiny_llama: Path
) -> None:
    shutil.copytree(tiny_llama, command.folder / "model")
    weights = command.folder / "model" / "model.safetensors"
    weights.chmod(0o644)
    sound = weights.read_bytes()

    def change(*args: object, **kwargs: object) -> None:
        weights.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))

    write_recipe(command.folder, Path("model"))
    command.patch.setattr("quantflow.measure.baseline.save_measurement", change)
    assert command("run", "tiny.yaml") == 2
    assert "changed while the run was under way" in command.err
    assert not list(command.folder.glob(".quantflow/store/baseline/*"))
    assert reports(command.folder)[-1]["verdict"] == "error"


def test_json_prints_the_report_and_nothing_else(again: Command) -> None:
    assert again("run", "tiny.yaml", "--json") == 0
    assert json.loads(again.out) == reports(again.folder)[-1]


def test_quiet_prints_the_verdict_only(again: Command) -> None:
    assert again("run", "tiny.yaml", "--quiet") == 0
    assert again.err == ""
    assert again.out.startswith("PASS")
    assert len(again.out.splitlines()) == 2


def test_the_recipe_in_the_report_does_not_hold_what_the_environment_put_there(
    again: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TITLE_PART", "hush-hush")
    path = again.folder / "tiny.yaml"
    path.write_text(
        path.read_text() + "report: {title: 'About ${TITLE_PART}', language: zh, text: redacted}\n"
    )
    assert again("run", "tiny.yaml") == 0
    report: Any = reports(again.folder)[-1]
    assert report["title"] == "About hush-hush"  # what the key is there to show
    assert "hush-hush" not in json.dumps(report["provenance"])
    assert report["provenance"]["recipe_resolved"]["report"]["title"] == "About ${TITLE_PART}"
    assert (report["language"], report["text"], report["published_text"]) == ("zh", "redacted", "redacted")
    page = again.folder / "reports" / "tiny" / report["run_id"] / "report.html"
    assert 'lang="zh-Hans"' in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", ["run tiny.yaml --json", "run tiny.yaml", "schema"])
def test_a_reader_that_goes_away_is_not_a_verdict(again: Command, arguments: str) -> None:
    code = "from quantflow.cli import main; main()"
    command = f"{sys.executable} -c '{code}' {arguments} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=again.folder, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_letters_that_the_terminal_lacks_do_not_end_the_run(again: Command) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from quantflow.cli import main; main()", "run", "tiny.yaml"],
        cwd=again.folder,
        env=ENVIRONMENT | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_verify_mends_a_published_copy_with_size_and_time_unchanged(again: Command) -> None:
    weights = again.folder / "artifacts" / "tiny" / "int4" / "model.safetensors"
    before, sound = weights.stat(), weights.read_bytes()
    weights.unlink()
    weights.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert again("run", "tiny.yaml", "--verify") == 0
    assert weights.read_bytes() == sound


def test_an_artifact_of_an_earlier_run_is_not_taken_for_that_of_a_failed_one(again: Command) -> None:
    again.patch.setattr("quantflow.quantize.stage.quantize_block", refuse)
    assert again("run", "tiny.yaml", "--set", "data.seed=1") == 2
    assert "artifact-of-an-earlier-run" in [e["code"] for e in reports(again.folder)[-1]["events"]]


def refuse(*args: object, **kwargs: object) -> None:
    raise QuantizationError("cannot be quantized", where="a layer")


def test_the_version_is_told(command: Command) -> None:
    assert command("--version") == 0
    assert command.out.startswith("quantflow 0.")


def test_schema_is_json_schema(command: Command) -> None:
    assert command("schema") == 0
    assert json.loads(command.out)["title"] == "QuantFlow recipe"


def test_a_crash_of_ours_is_exit_code_2_with_the_trace_in_a_file(
    again: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quantflow.cli.run_recipe", lambda *args, **kwargs: 1 / 0)
    assert again("run", "tiny.yaml") == 2
    assert "ZeroDivisionError" in again.err
    assert "ZeroDivisionError" in (again.folder / ".quantflow" / "traceback.txt").read_text()


def test_an_interrupt_is_exit_code_2_and_says_how_to_go_on(
    again: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("quantflow.cli.run_recipe", interrupted)
    assert again("run", "tiny.yaml") == 2
    assert "Go on with: quantflow run tiny.yaml" in again.err


def test_an_unwritable_workspace_is_named(command: Command, tiny_llama: Path) -> None:
    write_recipe(command.folder, tiny_llama)
    (command.folder / ".quantflow").write_text("a file where the folder should be")
    assert command("run", "tiny.yaml") == 2
    assert ".quantflow" in command.err


def test_verify_says_in_a_line_what_it_read_even_when_quiet(again: Command) -> None:
    assert again("run", "tiny.yaml", "--verify", "--quiet") == 0
    verified, verdict, _ = again.out.splitlines()
    assert re.fullmatch(
        r"Verified: \d+ stored files \(.+\) and \d+ of model and data \(.+\) read again; "
        r"damaged and computed anew: none\.",
        verified,
    )
    assert verdict.startswith("PASS")
    (samples,) = again.folder.glob(".quantflow/store/measure/*/samples.safetensors")
    before, sound = samples.stat(), samples.read_bytes()
    samples.chmod(0o644)
    samples.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    os.utime(samples, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert again("run", "tiny.yaml", "--verify", "--quiet") == 0
    assert "damaged and computed anew: measure:int4." in again.out


def test_verify_notices_data_that_changed_under_the_run_with_size_and_time_unchanged(
    again: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = again.folder / "letters.jsonl"
    shutil.rmtree(again.folder / ".quantflow" / "store" / "gate")
    monkeypatch.setattr(digest, "SETTLED_NS", 0)  # however lately the file was written
    original, contents = digest.file_digest, iter(["at the start", "at the end"])
    monkeypatch.setattr(
        digest, "file_digest", lambda path: next(contents) if path == letters else original(path)
    )
    assert again("run", "tiny.yaml", "--verify") == 2
    assert "letters.jsonl: it changed while the run was under way" in again.err
    assert not list(again.folder.glob(".quantflow/store/gate/*"))  # computed, and not kept
