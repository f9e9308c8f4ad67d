"""One thing that was looked at."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Level = Literal["fine", "note", "broken"]


class Finding(BaseModel):
    """What was found.

    Attributes:
        level: `fine`; `note`, worth knowing; `broken`, QuantFlow does not work like this.
        topic: What was looked at.
        text: What was found, and what to do where something is to be done.
    """

    model_config = ConfigDict(frozen=True)

    level: Level
    topic: str
    text: str
