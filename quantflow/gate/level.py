"""The three levels of lossless, by name."""

from typing import Literal

Level = Literal["L1", "L2", "L3"]
LEVELS: tuple[Level, ...] = ("L1", "L2", "L3")
MEANINGS: dict[Level, str] = {
    "L1": "mathematically lossless",
    "L2": "output-identical",
    "L3": "lossy, within the agreed margin",
}
