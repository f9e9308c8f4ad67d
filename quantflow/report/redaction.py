"""Whether a report holds what models were given and said: all of it, its shape, or nothing."""

import re
from collections.abc import Callable

from quantflow.measure.generated import GenerationValue
from quantflow.measure.measurement import Measurement
from quantflow.report.contexts import DivergentContext
from quantflow.report.model import Report
from quantflow.report.text import TextLevel
from quantflow.tasks.value import TaskValue

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]|\w+")
STRICTNESS: tuple[TextLevel, ...] = ("full", "redacted", "none")


def redact(report: Report, level: TextLevel) -> Report:
    """The report with its texts as `level` allows.

    `redacted` puts a number in place of every word, the same for the same word of a report: what is left
    shows where texts part, repeat themselves or break off, and nothing of what they say. `none` empties them.

    Args:
        report: A report.
        level: What may be left; a report that holds less stays as it is.
    """
    if STRICTNESS.index(level) <= STRICTNESS.index(report.text):
        return report
    numbers: dict[str, int] = {}

    def numbered(text: str) -> str:
        return _WORD.sub(lambda word: f"w{numbers.setdefault(word[0], len(numbers) + 1)}", text)

    def emptied(_: str) -> str:
        return ""

    change = numbered if level == "redacted" else emptied
    artifacts = tuple(
        artifact.model_copy(
            update={
                "measurements": _measured(artifact.measurements, change),
                "contexts": _contexts(artifact.contexts, change) if level == "redacted" else (),
            }
        )
        for artifact in report.artifacts
    )
    return report.model_copy(update={"artifacts": artifacts, "text": level})


def _measured(measured: Measurement | None, change: Callable[[str], str]) -> Measurement | None:
    if measured is None:
        return None
    tasks = {name: _task(value, change) for name, value in measured.tasks.items()}
    return measured.model_copy(
        update={"tasks": tasks, "generation": _generation(measured.generation, change)}
    )


def _contexts(
    contexts: tuple[DivergentContext, ...], change: Callable[[str], str]
) -> tuple[DivergentContext, ...]:
    return tuple(
        DivergentContext(
            before=change(one.before),
            came=change(one.came),
            baseline=None if one.baseline is None else change(one.baseline),
            artifact=None if one.artifact is None else change(one.artifact),
        )
        for one in contexts
    )


def _task(value: TaskValue, change: Callable[[str], str]) -> TaskValue:
    texts = ("baseline", "artifact", "wanted")
    flips = tuple(
        flip.model_copy(update={name: change(getattr(flip, name)) for name in texts}) for flip in value.flips
    )
    return value.model_copy(update={"flips": flips})


def _generation(value: GenerationValue | None, change: Callable[[str], str]) -> GenerationValue | None:
    if value is None:
        return None
    texts = ("prompt", "baseline", "artifact")
    pairs = tuple(
        pair.model_copy(update={name: change(getattr(pair, name)) for name in texts}) for pair in value.shown
    )
    return value.model_copy(update={"shown": pairs})
