"""What a task asks of a model, in whatever runtime, and answers that outlast an interruption."""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from quantflow.model.continuation import Continuation
from quantflow.pipeline.events import Reporter


@dataclass(frozen=True)
class Scored:
    """A continuation, scored.

    Attributes:
        logprob: Sum of its tokens' log-probabilities, nats.
        is_greedy: Whether each of its tokens is the likeliest where it stands.
    """

    logprob: float
    is_greedy: bool


class Batches:
    """Answers of finished batches in a file of the stage's progress, and how far the work has come.

    Args:
        reporter: Of the stage; its progress folder is found again by the same model, task and code only.
        name: Of the file.
        what: What is being done, for the reader of the progress bar.

    Attributes:
        keys: Hash of what went into each batch, in order: equal on both sides of a fair comparison.
    """

    def __init__(self, reporter: Reporter, name: str, what: str) -> None:
        self._reporter = reporter
        self._what = what
        self._path = reporter.progress_folder / f"{name}.jsonl"
        self._answers: dict[str, Any] = dict(_whole_lines(self._path))
        self.keys: list[str] = []

    def track(self, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show progress over so many batches."""
        return self._reporter.track(self._what, total)

    def find(self, content: object) -> tuple[str, Any]:
        """The key of a batch by what goes into it, and its answers; None where it has not been finished."""
        key = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        self.keys.append(key)
        return key, self._answers.get(key)

    def keep(self, key: str, answers: Any) -> None:
        """Add the answers of a batch."""
        self._reporter.keep(partial(self._append, json.dumps([key, answers]) + "\n"))

    def _append(self, line: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)


def _whole_lines(path: Path) -> list[tuple[str, Any]]:
    """What was kept; a last line that was cut short is not."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    found = []
    for line in lines:
        try:
            key, answers = json.loads(line)
        except ValueError:  # cut short, and gone on with after an interruption
            continue
        found.append((key, answers))
    return found


class TextModel(Protocol):
    """A model that is asked about token ids."""

    @property
    def folder(self) -> Path:
        """Where it lies."""
        ...

    @property
    def config(self) -> Any:
        """Its config in transformers' terms, for the length of its context."""
        ...

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], work: Batches) -> list[Scored]:
        """Score continuations after their contexts.

        Args:
            pairs: Token ids of context and continuation, both not empty, together at most one token longer
                than the model's context.
            work: Where finished batches are kept and progress is shown.
        """
        ...

    def go_on(
        self,
        prompts: Sequence[Sequence[int]],
        most_tokens: int,
        is_done: Callable[[Sequence[int]], bool],
        work: Batches,
    ) -> list[Continuation]:
        """Continue prompts greedily.

        Args:
            prompts: Token ids of each, one at least.
            most_tokens: Tokens to generate for each at most.
            is_done: Whether what was generated ends a text.
            work: Where finished batches are kept and progress is shown.
        """
        ...
