"""The section of a recipe about publishing: where artifacts go that may leave."""

from typing import Literal

from pydantic import Field

from quantflow.recipe.section import Section

HUB = "hub://"


class Publish(Section):
    """Where an artifact goes once it may: on a pass, or on a waiver that somebody approved."""

    when: Literal["pass"] = Field(
        default="pass",
        description="When artifacts are published: pass, each one whose own verdict is pass. A waiver and an "
        "approval let `quantflow publish` do it later. Default: pass.",
    )
    to: str = Field(
        min_length=1,
        description="Where to: a folder (relative to the recipe), in which each artifact gets "
        "<recipe>/<artifact>/<run id> with `current` leading to the newest and `previous` to the one before; "
        "or hub://org/name, a repository of the model hub, for one artifact.",
    )
