import io
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quantflow.errors import DataError, StoreError
from quantflow.pipeline.code import code_identity
from quantflow.pipeline.deadline import Deadline, DeadlineError
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.runner import StageOutcome, run_stages
from quantflow.pipeline.stage import Stage
from quantflow.pipeline.store import Store
from quantflow.pipeline.terminal import LogTerminal
from tests.pipeline.toy_stages import ToyParams

MACHINE = Machine(device="cpu", architecture="x86_64", instruction_sets=("avx2",))


class Bench:
    """A store in a temporary folder, and what ran on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store(root / "store")
        self.log = root / "log.txt"
        self.deadline = Deadline(None)
        self.unchanged: Callable[[], None] = lambda: None

    def stage(self, name: str, text: str = "a", function: str = "write", **more: object) -> Stage:
        inputs = more.pop("inputs", {})
        assert isinstance(inputs, dict)
        return Stage(
            name=name,
            function=f"tests.pipeline.toy_stages:{function}",
            params=ToyParams(text=text, log=str(self.log)),
            inputs=inputs,
            **more,  # type: ignore[arg-type]
        )

    def run(
        self, *stages: Stage, machine: Machine = MACHINE, verify: bool = False
    ) -> dict[str, StageOutcome]:
        self.shown = io.StringIO()
        outcomes = run_stages(
            stages,
            machine,
            self.store,
            LogTerminal(self.shown),
            deadline=self.deadline,
            unchanged=self.unchanged,
            verify=verify,
        )
        return {outcome.stage.name: outcome for outcome in outcomes}

    def computed(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def text_of(outcome: StageOutcome) -> str:
    assert outcome.stored is not None
    return (outcome.stored.folder / "text.txt").read_text()


def test_a_stage_gets_its_inputs_and_is_computed_once(bench: Bench) -> None:
    stages = (bench.stage("first", "a"), bench.stage("second", "b", inputs={"before": "first"}))
    assert text_of(bench.run(*stages)["second"]) == "ab"
    again = bench.run(*stages)
    assert text_of(again["second"]) == "ab"
    assert all(outcome.reused for outcome in again.values())
    assert bench.computed() == ["a", "b"]


def test_events_of_a_stored_stage_are_told_again(bench: Bench) -> None:
    bench.run(bench.stage("first"))
    outcome = bench.run(bench.stage("first"))["first"]
    assert [event.code for event in outcome.events] == ["toy-event"]
    assert "event toy-event (from the store): wrote a" in bench.shown.getvalue()


def test_a_changed_parameter_recomputes_what_hangs_on_it_and_nothing_else(bench: Bench) -> None:
    def stages(text: str) -> tuple[Stage, ...]:
        return (
            bench.stage("first", text),
            bench.stage("second", "b", inputs={"before": "first"}),
            bench.stage("apart", "c"),
        )

    bench.run(*stages("a"))
    bench.run(*stages("x"))
    assert bench.computed() == ["a", "b", "c", "x", "b"]


def test_changed_external_content_recomputes(bench: Bench) -> None:
    bench.run(bench.stage("first", external={"data.jsonl": "1" * 64}))
    bench.run(bench.stage("first", external={"data.jsonl": "2" * 64}))
    assert len(bench.computed()) == 2


def test_a_moved_file_with_the_same_content_is_no_change(bench: Bench) -> None:
    for folder in ("here", "there"):
        path = f"/{folder}/data.jsonl"
        bench.run(bench.stage("first", text=path, external={path: "1" * 64}))
    assert len(bench.computed()) == 1
    bench.run(bench.stage("first", text="/there/other.jsonl", external={"/there/other.jsonl": "1" * 64}))
    assert len(bench.computed()) == 2


def test_another_instruction_set_recomputes_only_what_depends_on_it(bench: Bench) -> None:
    stages = (bench.stage("any", "a"), bench.stage("here", "b", on_device=True))
    bench.run(*stages)
    bench.run(*stages, machine=MACHINE.model_copy(update={"instruction_sets": ("avx2", "avx512f")}))
    assert bench.computed() == ["a", "b", "b"]


def test_a_changed_size_is_noticed_and_recomputed(bench: Bench) -> None:
    stored = bench.run(bench.stage("first"))["first"].stored
    assert stored is not None
    flip(stored.folder / "text.txt", b"longer")
    outcome = bench.run(bench.stage("first"))["first"]
    assert not outcome.reused
    assert text_of(outcome) == "a"
    assert [event.code for event in outcome.events] == ["stored-output-damaged", "toy-event"]


def test_a_flipped_byte_with_a_new_time_is_noticed(bench: Bench) -> None:
    stored = bench.run(bench.stage("first"))["first"].stored
    assert stored is not None
    flip(stored.folder / "text.txt", b"b")
    os.utime(stored.folder / "text.txt", ns=(0, 0))
    assert text_of(bench.run(bench.stage("first"))["first"]) == "a"


def test_a_flipped_byte_with_size_and_time_unchanged_is_noticed_by_verify(bench: Bench) -> None:
    stored = bench.run(bench.stage("first"))["first"].stored
    assert stored is not None
    path = stored.folder / "text.txt"
    before = path.stat()
    flip(path, b"b")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert text_of(bench.run(bench.stage("first"))["first"]) == "b"
    assert text_of(bench.run(bench.stage("first"), verify=True)["first"]) == "a"


def test_a_missing_or_broken_manifest_is_recomputed(bench: Bench) -> None:
    stored = bench.run(bench.stage("first"))["first"].stored
    assert stored is not None
    flip(stored.folder / "manifest.json", b"{")
    assert not bench.run(bench.stage("first"))["first"].reused
    assert bench.run(bench.stage("first"))["first"].reused


def test_a_failing_shared_stage_ends_the_run_and_keeps_what_is_finished(bench: Bench) -> None:
    stages = (
        bench.stage("first", "a"),
        bench.stage("bad", function="refuse"),
        bench.stage("apart", "c"),
    )
    outcomes = bench.run(*stages)
    assert isinstance(outcomes["bad"].error, DataError)
    assert outcomes["apart"].stored is None
    assert bench.run(*stages)["first"].reused


def test_a_failing_artifact_takes_only_its_own_stages_along(bench: Bench) -> None:
    outcomes = bench.run(
        bench.stage("bad:one", function="refuse", artifact="one"),
        bench.stage("after:one", inputs={"before": "bad:one"}, artifact="one"),
        bench.stage("good:two", "b", artifact="two"),
    )
    assert outcomes["after:one"].stored is None
    assert outcomes["after:one"].error is None
    assert text_of(outcomes["good:two"]) == "b"


def test_a_failure_is_never_stored(bench: Bench) -> None:
    bench.run(bench.stage("bad", function="refuse"))
    assert isinstance(bench.run(bench.stage("bad", function="refuse"))["bad"].error, DataError)
    assert not list((bench.root / "store" / "partial").iterdir())


def test_a_crash_leaves_nothing_that_looks_finished(bench: Bench) -> None:
    with pytest.raises(ZeroDivisionError):
        bench.run(bench.stage("first"), bench.stage("bad", function="crash"))
    assert bench.run(bench.stage("first"))["first"].reused
    with pytest.raises(ZeroDivisionError):
        bench.run(bench.stage("bad", function="crash"))


def test_a_full_disk_is_an_error_that_names_the_file(bench: Bench) -> None:
    error = bench.run(bench.stage("full", function="fill_the_disk"))["full"].error
    assert isinstance(error, StoreError)
    assert "No space left" in str(error)
    assert "model.safetensors" in str(error)


def test_a_resumable_stage_goes_on_in_what_an_interruption_left(bench: Bench) -> None:
    stages = (bench.stage("long", "abcdef", function="letter_by_letter", resumable=True),)
    with pytest.raises(KeyboardInterrupt):
        bench.run(*stages)
    outcome = bench.run(*stages)["long"]
    assert text_of(outcome) == "abcdef"
    # Each letter was written once, and the event from before the interruption is told once.
    assert bench.computed() == list("abcdef")
    assert [event.code for event in outcome.events] == ["begun", "halfway"]
    assert not list((bench.root / "store" / "partial").iterdir())


def test_other_stages_start_anew_after_an_interruption(bench: Bench) -> None:
    stages = (bench.stage("long", "abcdef", function="letter_by_letter"),)
    with pytest.raises(KeyboardInterrupt):
        bench.run(*stages)
    with pytest.raises(KeyboardInterrupt):
        bench.run(*stages)
    assert bench.computed() == list("abcabc")


def test_the_time_limit_stops_between_two_steps_and_keeps_what_is_done(bench: Bench) -> None:
    now = iter(range(100))
    bench.deadline = Deadline(8, clock=lambda: float(next(now)))
    with pytest.raises(DeadlineError, match="time limit"):
        bench.run(bench.stage("first", "ab"), bench.stage("second", "abcdefgh"))
    bench.deadline = Deadline(None)
    assert bench.run(bench.stage("first", "ab"))["first"].reused


def test_a_second_run_waits_for_the_first_and_takes_its_output(bench: Bench) -> None:
    stage = bench.stage("first")
    key = bench.run(stage)["first"].key
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with bench.store.lock(key, lambda holder: None):
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    inside.wait(10)
    threading.Timer(0.3, leave.set).start()
    assert bench.run(stage)["first"].reused
    other.join()
    assert f"waiting for process {os.getpid()} on " in bench.shown.getvalue()


def flip(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)


@pytest.mark.parametrize("field", ["digest", "libraries"])
def test_other_code_or_another_library_recomputes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    bench.run(bench.stage("first"))
    other: dict[str, Any] = {"digest": "0" * 64, "libraries": {"torch": "0"}}
    monkeypatch.setattr(
        "quantflow.pipeline.runner.code_identity",
        lambda module: replace(code_identity(module), **{field: other[field]}),
    )
    bench.run(bench.stage("first"))
    assert len(bench.computed()) == 2


def test_a_share_that_went_away_keeps_what_a_resumable_stage_had(bench: Bench) -> None:
    stage = bench.stage("long", function="lose_the_share", resumable=True)
    error = bench.run(stage)["long"].error
    assert isinstance(error, DataError)
    assert error.hint.startswith("What is finished is kept. See that it is there again")
    assert text_of(bench.run(stage)["long"]) == "went on"


def test_a_mistake_in_the_input_keeps_nothing(bench: Bench) -> None:
    stage = bench.stage("long", function="find_a_mistake", resumable=True)
    assert isinstance(bench.run(stage)["long"].error, DataError)
    assert not list((bench.root / "store" / "partial").iterdir())


def test_progress_that_cannot_be_kept_is_said_once_and_only_of_this_run(bench: Bench) -> None:
    stage = bench.stage("long", function="keep_what_cannot_be_kept", resumable=True)
    outcome = bench.run(stage)["long"]
    assert text_of(outcome) == "[False, False, False, True]"
    assert [event.code for event in outcome.events] == ["progress-not-kept"]
    assert "No space left on device" in outcome.events[0].message
    assert bench.shown.getvalue().count("event progress-not-kept") == 1
    assert bench.run(stage)["long"].events == ()


def test_an_interrupted_stage_that_cannot_go_on_leaves_the_disk_free(bench: Bench) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.run(bench.stage("long", "abcdef", function="letter_by_letter"))
    assert not list((bench.root / "store" / "partial").iterdir())


def test_a_file_that_has_other_names_keeps_its_mode(bench: Bench, tmp_path: Path) -> None:
    unfinished = bench.store.begin("k" * 64, resume=False)
    cached = tmp_path / "in-the-hub-s-cache.bin"
    cached.write_text("shared")
    cached.chmod(0o644)
    os.link(cached, unfinished.output / "linked.bin")
    (unfinished.output / "own.bin").write_text("own")
    stored = bench.store.commit("kind", "k" * 64, {}, (), 0.0)
    assert (cached.stat().st_mode & 0o777) == 0o644
    assert (stored.folder / "own.bin").stat().st_mode & 0o777 == 0o444
