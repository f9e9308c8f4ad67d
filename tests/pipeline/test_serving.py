"""What vLLM's options are resolved from."""

import os

import pytest

from quantflow.pipeline.serving import threads_asked


@pytest.mark.parametrize(
    ("asked", "threads"),
    [("3", 3), (" 2 ", 2), ("4,2", 4), ("", None), ("0", None), ("-1", None), ("many", None), ("²", None)],
)
def test_threads_are_those_that_openmp_would_take(
    monkeypatch: pytest.MonkeyPatch, asked: str, threads: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert threads_asked() == (threads or len(os.sched_getaffinity(0)))
