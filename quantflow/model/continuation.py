"""What a model went on with after a prompt, whatever it was run in."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Continuation:
    """What a model went on with.

    Attributes:
        tokens: Token ids, the one it ended with included.
        margins: For each of them, how far the likeliest token's logit was above the second's.
    """

    tokens: tuple[int, ...]
    margins: tuple[float, ...]
