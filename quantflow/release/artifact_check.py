"""Checks an artifact folder: that its bytes are those it says, and that a report is about these bytes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantflow.errors import ArtifactError
from quantflow.pipeline.digest import file_digest
from quantflow.report.model import ArtifactReport, Report

PROVENANCE = "quantflow.json"
BESIDE = frozenset({PROVENANCE, "README.md", "report.html", "report.json"})
"""Files that quantflow.json does not vouch for: itself, and what publishing puts beside it."""


@dataclass(frozen=True)
class CheckedArtifact:
    """An artifact whose bytes are what its quantflow.json says.

    Attributes:
        folder: Where it lies.
        name: Its name in the recipe.
        format: Its layout.
        digest: SHA-256 of quantflow.json.
        files: How many files were read.
        bytes: Their size together.
        source: Identity of the lossless model that it was made from.
    """

    folder: Path
    name: str
    format: str
    digest: str
    files: int
    bytes: int
    source: str


def artifact_digest(folder: Path) -> str:
    """Digest of an artifact: SHA-256 of its quantflow.json, which holds those of its other files."""
    return file_digest(folder / PROVENANCE)


def vouched_digest(folder: Path) -> str | None:
    """Digest of somebody else's artifact; None where no quantflow.json vouches for the bytes that lie there.

    One that was copied beside other weights would let a report on those stand for the ones it was written of.
    """
    try:
        return check_artifact(folder).digest
    except ArtifactError:
        return None


def check_artifact(folder: Path) -> CheckedArtifact:
    """Read every file of an artifact and hold it to its checksum.

    Raises:
        ArtifactError: It has no provenance, a file is missing, changed, or not vouched for.
    """
    provenance = _provenance(folder)
    expected: dict[str, str] = provenance["files"]
    # What a linked folder holds is not listed, and a runtime would read it: the link itself is unknown then.
    entries = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    present = {path.relative_to(folder).as_posix(): path.is_file() for path in entries}
    missing = sorted(name for name in expected if not present.get(name))
    unknown = sorted(
        name for name, is_file in present.items() if name not in expected and not (is_file and name in BESIDE)
    )
    if missing:
        raise ArtifactError(f"files are missing: {_few(missing)}", where=str(folder))
    if unknown:
        raise ArtifactError(
            f"there are files that it does not vouch for: {_few(unknown)}",
            where=str(folder),
            hint="Whoever put them there may have changed what a runtime loads: take them away, or make the "
            "artifact anew.",
        )
    changed = [name for name in sorted(expected) if file_digest(folder / name) != expected[name]]
    if changed:
        raise ArtifactError(f"files are not what was written: {_few(changed)}", where=str(folder))
    return CheckedArtifact(
        folder=folder,
        name=str(provenance.get("name", "")),
        format=str(provenance.get("format", "")),
        digest=artifact_digest(folder),
        files=len(expected),
        bytes=sum((folder / name).stat().st_size for name in expected),
        source=str(provenance.get("source", {}).get("identity", "")),
    )


def require_report_of(report: Report, artifact: CheckedArtifact) -> ArtifactReport:
    """What a report says of an artifact's very bytes.

    Raises:
        ArtifactError: It is about other bytes, or says of another model.
    """
    about = [entry for entry in report.artifacts if entry.digest == artifact.digest]
    if not about:
        raise ArtifactError(
            f"the report of run {report.run_id} is not about these bytes",
            where=str(artifact.folder),
            hint="Of what it reports on, "
            + (
                _few([f"{a.name} has the digest {(a.digest or 'none')[:12]}" for a in report.artifacts])
                or "nothing"
            )
            + f"; this has {artifact.digest[:12]}.",
        )
    if report.baseline is not None and report.baseline.identity != artifact.source:
        raise ArtifactError("the report is about another lossless model", where=str(artifact.folder))
    return about[0]


def _provenance(folder: Path) -> dict[str, Any]:
    path = folder / PROVENANCE
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(
            "it has no quantflow.json, so nothing says what it is",
            where=str(folder),
            hint="Name the folder of an artifact, such as artifacts/RECIPE/NAME.",
        ) from error
    except (OSError, ValueError) as error:
        raise ArtifactError(f"it cannot be read: {error}", where=str(path)) from error
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not all(isinstance(v, str) for v in files.values()):
        raise ArtifactError("it holds no checksums of the artifact's files", where=str(path))
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
        raise ArtifactError("it names files outside of the artifact", where=str(path))
    found: dict[str, Any] = content
    return found


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
