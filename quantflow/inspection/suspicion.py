"""A sign that a model is broken, which is no proof."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from quantflow.errors import SourceError
from quantflow.pipeline.events import Reporter


@dataclass(frozen=True)
class Suspicion:
    """What looks wrong, and what it would be called as an event.

    Attributes:
        code: As of an event.
        message: What is wrong, in a sentence.
        hint: What may be the cause.
        detail: Figures behind it.
    """

    code: str
    message: str
    hint: str
    detail: Mapping[str, JsonValue] = field(default_factory=dict)


ALLOW_HINT = "If the model is meant to be like that, set model.allow_suspect: true."


def settle(suspicions: Sequence[Suspicion], allowed: bool, where: str, reporter: Reporter) -> None:
    """End the run for what looks broken, or go on with an event for each where the recipe says so.

    Raises:
        SourceError: There are suspicions and they are not allowed.
    """
    if not suspicions:
        return
    if allowed:
        for suspicion in suspicions:
            reporter.event(suspicion.code, suspicion.message, **suspicion.detail)
        return
    first, *others = suspicions
    message = first.message.rstrip(".")
    message += "".join(f"\n  also: {other.message}" for other in others)
    raise SourceError(message, where=where, hint=f"{first.hint} {ALLOW_HINT}")
