"""Which bytes a report is about: the digest of each artifact, and the imports that have none."""

from collections.abc import Mapping, Sequence

from quantflow.formats.assembly import Assembly, load_assembly
from quantflow.pipeline.events import Event
from quantflow.pipeline.runner import StageOutcome
from quantflow.release.artifact_check import PROVENANCE, artifact_digest, vouched_digest
from quantflow.report.model import ArtifactReport


def digest_of(assembly: Assembly) -> str | None:
    """Digest of an artifact's bytes; None of an import whose bytes no quantflow.json vouches for."""
    if assembly.imported is not None:
        return vouched_digest(assembly.folder)
    return artifact_digest(assembly.folder) if (assembly.folder / PROVENANCE).is_file() else None


def not_vouched(
    artifacts: Sequence[ArtifactReport], outcomes: Mapping[str, StageOutcome]
) -> tuple[Event, ...]:
    """Say of which imports the quantflow.json is about other files than lie there.

    Args:
        artifacts: What the report says of each.
        outcomes: Stage → what became of it.
    """
    found = []
    for artifact in artifacts:
        stage = f"assemble:{artifact.name}"
        stored = outcomes[stage].stored
        if artifact.digest is not None or stored is None:
            continue
        if (load_assembly(stored.folder).folder / PROVENANCE).is_file():
            message = (
                f"The quantflow.json in {artifact.path} is not about the files that lie there, so that the "
                "report names no digest of them."
            )
            found.append(Event(code="import-not-vouched", stage=stage, message=message))
    return tuple(found)
