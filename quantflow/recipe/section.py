"""What every mapping of a recipe has in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

# Names become folders and words of a command line, on file systems that fold case, too.
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]*$"
NAME_MAX = 64
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=NAME_MAX)]


class Section(BaseModel):
    """Base of every mapping in a recipe: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
