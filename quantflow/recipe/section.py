"""What every mapping of a recipe has in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every mapping in a recipe: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
