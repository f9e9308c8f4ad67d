"""What became of the tokens of a split, as a bar."""

from dataclasses import dataclass

from quantflow.data.documents import SplitAccounting
from quantflow.report.figures import count
from quantflow.report.wording import Wording

TOKEN_FATES = ("used", "undrawn", "incomplete", "too_short", "duplicate")


@dataclass(frozen=True)
class Share:
    """A piece of a bar that is 100 wide.

    Attributes:
        kind: Names its colour.
        start: Where it begins.
        width: How wide it is.
        label: It in words.
    """

    kind: str
    start: float
    width: float
    label: str


def token_bar(split: SplitAccounting, words: Wording) -> list[Share]:
    """What became of a split's tokens, as one bar."""
    shares: list[Share] = []
    start = 0.0
    for kind in TOKEN_FATES:
        tokens: int = getattr(split.total, f"tokens_{kind}")
        if tokens > 0:
            width = round(100 * tokens / split.total.tokens_read, 3)
            shares.append(Share(kind, round(start, 3), width, words(f"fate.{kind}", count=count(tokens))))
            start += width
    return shares
