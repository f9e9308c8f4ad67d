"""`quantflow gate`: a recipe's data and gate for a model and an artifact that it does not name."""

import json
from pathlib import Path

CANDIDATE = "candidate"


def judging(baseline: str, candidate: Path) -> tuple[str, ...]:
    """What has to be overridden in a recipe to judge an artifact that is there already.

    Args:
        baseline: The lossless model: a path relative to the working directory, or whatever else a recipe's
            model.source may say.
        candidate: The artifact's folder.
    """
    source = Path(baseline).expanduser()
    place = str(source.resolve()) if source.exists() else baseline
    artifact = {"name": CANDIDATE, "import": str(candidate.expanduser().resolve())}
    return (
        f"model.source={json.dumps(place)}",
        "model.revision=null",
        f"artifacts={json.dumps([artifact])}",
    )
