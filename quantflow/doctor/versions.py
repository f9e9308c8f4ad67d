"""Installed libraries against what their metadata ask of one another and against the tested versions."""

from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from platform import python_version

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from quantflow.doctor.finding import Finding

PACKAGE = "quantflow"
# Libraries whose version decides what comes out or whether it runs; the others only have to suit them.
NAMED = (
    "torch",
    "transformers",
    "tokenizers",
    "accelerate",
    "safetensors",
    "gguf",
    "huggingface_hub",
    "numpy",
)


def library_findings() -> Iterator[Finding]:
    """What is installed, what is missing or at odds, what differs from the tested set."""
    installed = {name: _version(name) for name in NAMED}
    shown = ", ".join(f"{name} {version or 'missing'}" for name, version in installed.items())
    yield Finding(level="fine", topic="libraries", text=f"Python {python_version()}, {shown}")
    conflicts = list(find_conflicts(PACKAGE))
    for conflict in conflicts:
        yield Finding(level="broken", topic="libraries", text=conflict)
    if not conflicts:
        yield Finding(
            level="fine", topic="libraries", text="all that QuantFlow needs is there, and suits one another"
        )
    others = different_from_tested()
    if others:
        listing = ", ".join(f"{name} {version} (tested: {tested})" for name, version, tested in others)
        yield Finding(
            level="note", topic="libraries", text=f"other versions than those tested together: {listing}"
        )


def find_conflicts(package: str) -> Iterator[str]:
    """Requirements that are not met, of a distribution and of all that it needs, as `pip check` finds them.

    Args:
        package: Name of the distribution to start from.
    """
    pending, seen = [(package, frozenset[str]())], set[tuple[str, frozenset[str]]]()
    while pending:
        name, extras = pending.pop()
        if (canonicalize_name(name), extras) in seen:
            continue
        seen.add((canonicalize_name(name), extras))
        for requirement in _requirements(name, extras):
            version = _version(requirement.name)
            if version is None:
                yield f"{name} needs {requirement}, which is not installed. Run `make setup`."
            elif not _suits(requirement, version):
                yield f"{name} needs {requirement}, installed is {version}. Run `make setup`."
            if version is not None:
                pending.append((requirement.name, frozenset(requirement.extras)))


def different_from_tested() -> list[tuple[str, str, str]]:
    """Name, installed and tested version of every library that is installed in another version."""
    found = [(name, _version(name), tested) for name, tested in pinned_versions().items()]
    return [
        (name, version, tested)
        for name, version, tested in found
        if version is not None and _public(version) != tested
    ]


@cache
def pinned_versions() -> dict[str, str]:
    """The versions that QuantFlow is tested with, of what it needs at run time."""
    text = (files("quantflow.doctor") / "constraints.txt").read_text(encoding="utf-8")
    runtime, _, _ = text.partition("# Tests, types and lint")
    pins = (line.partition("==") for line in runtime.splitlines() if not line.startswith("#"))
    return {name: version.strip() for name, _, version in pins if version}


def _requirements(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:  # its own author's mistake, which pip lets pass as well
            continue
        wanted = [{"extra": extra} for extra in ("", *sorted(extras))]
        if requirement.marker is None or any(requirement.marker.evaluate(w) for w in wanted):
            yield requirement


def _suits(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _public(version: str) -> str:
    """Without the local part that says which build it is, as in `2.13.0+cpu`."""
    try:
        return Version(version).public
    except InvalidVersion:
        return version


def _version(name: str) -> str | None:
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return None
