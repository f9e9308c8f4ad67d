"""What is broken is called broken, what is worth knowing is told, all else is fine."""

import os
from pathlib import Path

import pytest

from quantflow.doctor import computing, examine
from quantflow.doctor.computing import TorchAnswer, ask_torch
from quantflow.doctor.finding import Finding
from quantflow.hardware.gpu import Gpu, Gpus
from quantflow.hardware.memory import Memory

SOUND = TorchAnswer(threads=2, cpu_right=True)
GB = 10**9


@pytest.fixture(autouse=True)
def sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 16 GB, no GPU, and a torch that works."""
    monkeypatch.setattr(examine, "ask_torch", lambda: SOUND)
    monkeypatch.setattr(examine, "find_gpus", lambda: Gpus("", ()))
    monkeypatch.setattr(examine, "find_memory", lambda: Memory(16 * GB, 12 * GB, None, 0))
    monkeypatch.setattr(
        examine, "library_findings", lambda: iter([Finding(level="fine", topic="libraries", text="sound")])
    )


def findings(folder: Path, topic: str) -> list[Finding]:
    return [finding for finding in examine.examine(folder).findings if finding.topic == topic]


def only(folder: Path, topic: str) -> Finding:
    (finding,) = findings(folder, topic)
    return finding


def test_a_sound_machine_is_fine(tmp_path: Path) -> None:
    found = examine.examine(tmp_path)
    assert not found.broken
    assert {finding.level for finding in found.findings} <= {"fine", "note"}
    assert found.advice.keys() == {"INT8", "INT4", "bf16"}


def test_a_torch_that_does_not_start_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "ask_torch", lambda: TorchAnswer(broken="libfoo.so is missing"))
    assert examine.examine(tmp_path).broken
    assert "libfoo.so is missing" in only(tmp_path, "torch").text


def test_a_torch_that_computes_wrong_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        examine, "ask_torch", lambda: TorchAnswer(threads=2, cpu_right=True, cuda_right=False, cuda_devices=1)
    )
    assert [finding.level for finding in findings(tmp_path, "torch")] == ["fine", "broken"]


def test_a_folder_that_cannot_be_written_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert only(tmp_path, "disk").level == "broken"


def test_memory_below_what_the_program_takes_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examine, "find_memory", lambda: Memory(GB // 4, GB // 4, GB // 4, 0))
    found = only(tmp_path, "memory")
    assert found.level == "broken"
    assert "limit of the control group: 250 MB" in found.text


def test_a_gpu_that_torch_does_not_use_is_worth_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = Gpus("599.01", (Gpu("Example H", 80 * GB, 70 * GB, (9, 0)),))
    monkeypatch.setattr(examine, "find_gpus", lambda: gpus)
    fine, note = findings(tmp_path, "GPU")
    assert "Example H, 80 GB, 70 GB free, compute capability 9.0, driver 599.01" in fine.text
    assert (note.level, "build without CUDA" in note.text) == ("note", True)
    monkeypatch.setattr(
        examine, "ask_torch", lambda: TorchAnswer(threads=2, cpu_right=True, cuda_right=True, cuda_devices=1)
    )
    assert [finding.level for finding in findings(tmp_path, "GPU")] == ["fine"]


def test_torch_is_asked_and_answers() -> None:
    answer = ask_torch()
    assert answer.broken == ""
    assert answer.cpu_right
    assert answer.threads >= 1


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("import absent_library", "No module named 'absent_library'"),
        ("import os; os.kill(os.getpid(), 11)", "signal 11"),
        ("print('hello')", "makes no sense"),
        ("import sys; sys.exit(3)", "code 3"),
    ],
)
def test_whatever_happens_to_torch_is_an_answer(
    program: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computing, "PROGRAM", program)
    assert complaint in ask_torch().broken
