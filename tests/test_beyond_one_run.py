"""Commands over several runs as a user has them: history, comparison, decisions, publishing."""

import csv
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quantflow
from tests.test_run import Command
from tests.tiny_run import write_recipe

UNTIL = ("--until", "2999-12-31")
WAIVE = ("waive", "latest:narrow", "--criterion", "kl")
REASON = ("--reason", "a pilot with ten users")


@pytest.fixture(scope="module")
def finished(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that passes and one, of a recipe with a narrower margin, that fails."""
    folder = tmp_path_factory.mktemp("beyond")
    recipe = write_recipe(folder, tiny_llama)
    quantflow.run(quantflow.load_recipe(recipe), folder=folder)
    narrow = folder / "narrow.yaml"
    text = recipe.read_text().replace("name: tiny", "name: narrow")
    narrow.write_text(text.replace("max_mean: 0.5", "max_mean: 1.0e-9"))
    quantflow.run(quantflow.load_recipe(narrow), folder=folder)
    return folder


@pytest.fixture
def command(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copytree(finished, tmp_path / "work")
    yield Command(tmp_path / "work", capsys, monkeypatch)


def report_of(command: Command, recipe: str) -> dict[str, Any]:
    (path,) = command.folder.glob(f"reports/{recipe}/*/report.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_history_lists_runs_and_filters_them(command: Command) -> None:
    assert command("history") == 0
    assert "narrow" in command.out and "tiny" in command.out and "fail" in command.out
    assert command("history", "--recipe", "tiny", "--json") == 0
    (entry,) = json.loads(command.out)
    assert (entry["recipe"], entry["verdict"]) == ("tiny", "pass")
    assert command("history", "--since", "1h", "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(command.out)))
    assert [row["recipe"] for row in rows] == ["tiny", "narrow"]
    assert command("history", "--since", "2999-01-01", "--json") == 0
    assert json.loads(command.out) == []


@pytest.mark.parametrize("arguments", [("--since", "yesterday"), ("--json", "--csv")])
def test_history_refuses_what_it_does_not_understand(command: Command, arguments: tuple[str, ...]) -> None:
    assert command("history", *arguments) == 4


def test_comparing_runs_pairs_what_was_measured_at_the_same_positions(command: Command) -> None:
    assert command("compare", "latest:tiny", "latest:narrow", "--json") == 0
    found = json.loads(command.out)
    assert [a["recipe"] for a in found["artifacts"]] == ["tiny", "narrow"]
    assert {(p["metric"], p["difference"]) for p in found["paired"]} == {("nll", 0.0), ("kl", 0.0)}
    assert command("compare", "latest:tiny", "latest:narrow") == 0
    assert "no difference shown" in command.out
    shutil.rmtree(command.folder / ".quantflow" / "store")
    assert command("compare", "latest:tiny", "latest:narrow") == 0
    assert "not in the store any more" in command.out


def test_one_artifact_cannot_be_compared_and_an_unknown_run_is_named(command: Command) -> None:
    assert command("compare", "latest:tiny") == 4
    assert command("compare", "latest:tiny", "20200101") == 4
    assert "no report of such a run" in command.err


def test_a_waiver_is_on_record_and_changes_no_verdict(command: Command) -> None:
    arguments = (
        "waive",
        "latest:narrow",
        "--criterion",
        "kl",
        *REASON,
        "--until",
        "2999-12-31",
        "--by",
        "Ada",
    )
    assert command(*arguments) == 0
    report = report_of(command, "narrow")
    assert (report["verdict"], report["exit_code"]) == ("fail", 1)
    (decision,) = report["decisions"]
    assert (decision["kind"], decision["by"], decision["criterion"]) == ("waiver", "Ada", "kl/kl_mean")
    assert (
        command("run", "narrow.yaml", "--quiet") == 1
    )  # the same bytes again: still a failure, still waived
    newest = max(
        command.folder.glob("reports/narrow/*/report.json"), key=lambda path: path.stat().st_mtime_ns
    )
    assert json.loads(newest.read_text())["decisions"] == [decision]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("waive", "latest:tiny", "--criterion", "kl", *REASON, "--until", "2999-12-31"), "It misses: none"),
        ((*WAIVE, *REASON, "--until", "2020-01-01"), "has passed"),
        ((*WAIVE, *REASON, "--until", "soon"), "no date"),
        (
            ("waive", "latest:narrow", "--criterion", "kl", "--reason", " ", "--until", "2999-01-01"),
            "needs a reason",
        ),
        (("approve", "nothing", *REASON), "no report of such a run"),
    ],
)
def test_a_decision_that_means_nothing_is_refused(
    command: Command, arguments: tuple[str, ...], said: str
) -> None:
    assert command(*arguments) == 4
    assert said in command.err
    assert report_of(command, "narrow")["decisions"] == []


def test_what_fails_is_published_only_when_waived_and_approved(command: Command) -> None:
    publish = ("publish", "latest:narrow", "--to", "shelf")
    assert command(*publish) == 2
    assert "no waiver holds for: kl" in command.out
    assert command(*WAIVE, *REASON, *UNTIL) == 0
    assert command("approve", "latest:narrow", *REASON) == 0
    assert command(*publish) == 0
    current = command.folder / "shelf" / "narrow" / "int4" / "current"
    assert json.loads((current / "report.json").read_text())["verdict"] == "fail"
    assert command("verify-artifact", str(current)) == 0
    assert "fail" in command.out


def test_a_decision_written_into_a_report_by_hand_publishes_nothing(command: Command) -> None:
    command(*WAIVE, *REASON, *UNTIL)
    command("approve", "latest:narrow", *REASON)
    (command.folder / ".quantflow" / "history.sqlite").unlink()
    assert command("publish", "latest:narrow", "--to", "shelf") == 2


def test_a_recipe_publishes_what_passes_and_a_rollback_returns(command: Command) -> None:
    recipe = command.folder / "tiny.yaml"
    recipe.write_text(recipe.read_text() + "publish: {to: shelf}\n")
    assert command("run", "tiny.yaml", "--quiet") == 0
    shelf = command.folder / "shelf" / "tiny" / "int4"
    first = (shelf / "current").readlink()
    assert command("run", "tiny.yaml", "--quiet") == 0  # the same bytes: no new version
    assert (shelf / "current").readlink() == first
    assert command("run", "tiny.yaml", "--quiet", "--set", "artifacts[0].method=rtn") == 0
    assert (shelf / "previous").readlink() == first != (shelf / "current").readlink()
    assert command("rollback", "tiny", "int4", "--to", "shelf") == 0
    assert (shelf / "current").readlink() == first
    assert command("verify-artifact", str(shelf / "current")) == 0


def test_what_fails_is_not_published_by_its_recipe(command: Command) -> None:
    recipe = command.folder / "narrow.yaml"
    recipe.write_text(recipe.read_text() + "publish: {to: shelf}\n")
    assert command("run", "narrow.yaml", "--quiet") == 1
    assert not (command.folder / "shelf").exists()


def test_publishing_where_nobody_may_write_keeps_the_verdict_and_is_an_error(command: Command) -> None:
    recipe = command.folder / "tiny.yaml"
    recipe.write_text(recipe.read_text() + "publish: {to: letters.jsonl}\n")  # a file, no folder
    assert command("run", "tiny.yaml", "--quiet") == 2
    assert "publishing failed" in command.err and "with the verdict pass" in command.err


def test_verifying_finds_changed_bytes_and_a_missing_report(command: Command) -> None:
    folder = command.folder / "artifacts" / "tiny" / "int4"
    assert command("verify-artifact", str(folder)) == 0
    assert "all are what was written" in command.out and "pass" in command.out
    shutil.move(command.folder / "reports", command.folder / "elsewhere")
    assert command("verify-artifact", str(folder)) == 2
    assert "no report is about it" in command.err
    (folder / "config.json").unlink()
    (folder / "config.json").write_text("{}")
    assert command("verify-artifact", str(folder)) == 2
    assert "not what was written: config.json" in command.err


@pytest.mark.parametrize("form", ["junit", "markdown", "prometheus", "model-card"])
def test_a_report_is_exported_to_standard_output_or_a_file(command: Command, form: str) -> None:
    assert command("export", "latest:tiny", "--format", form) == 0
    text = command.out
    assert command("export", "latest:tiny", "--format", form, "--output", "out.txt") == 0
    assert (command.folder / "out.txt").read_text() == text


def test_several_recipes_run_whatever_becomes_of_one_and_the_worst_counts(command: Command) -> None:
    (command.folder / "broken.yaml").write_text("version: 1\nname: broken\n")
    assert command("run", "broken.yaml", "tiny.yaml", "narrow.yaml", "--json", "--quiet") == 4
    batch = json.loads(command.out)
    assert [o["exit_code"] for o in batch["outcomes"]] == [4, 0, 1]
    page = command.folder / "reports" / "summaries" / batch["batch_id"] / "index.html"
    links = [o["report"] for o in batch["outcomes"] if o["report"]]
    assert len(links) == 2 and all(Path(link).name in page.read_text() for link in links)


def test_nightly_runs_every_recipe_of_a_folder(command: Command) -> None:
    assert command("nightly", ".") == 1
    assert "narrow.yaml" in command.out and "tiny.yaml" in command.out
    assert command("nightly", "reports") == 4
    assert command("nightly", "nowhere") == 4


def test_recipes_beyond_the_time_limit_are_not_begun_and_said(command: Command) -> None:
    shutil.rmtree(command.folder / ".quantflow" / "store")
    assert command("run", "tiny.yaml", "narrow.yaml", "--json", "--quiet", "--time-limit", "0.001s") == 2
    assert [o["exit_code"] for o in json.loads(command.out)["outcomes"]] == [2, 2]


def test_a_verdict_written_into_a_report_by_hand_publishes_nothing(command: Command) -> None:
    (path,) = command.folder.glob("reports/narrow/*/report.json")
    report = json.loads(path.read_text())
    report["artifacts"][0]["verdict"] = report["verdict"] = "pass"
    path.write_text(json.dumps(report))
    assert command("publish", "latest:narrow", "--to", "shelf") == 2
    assert "does not say what the history has" in command.err
    assert not (command.folder / "shelf").exists()
