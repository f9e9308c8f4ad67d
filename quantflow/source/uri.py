"""What a recipe's `model.source` can be: a folder, a GGUF file, a hub id or a file inside a wheel."""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from quantflow.errors import RecipeError

SourceKind = Literal["folder", "gguf", "hub", "wheel"]

WHEEL_SCHEME = "wheel://"
_WHEEL_FORM = "wheel://package==version/path/in/wheel.gguf#sha256=<64 hex digits>"
_FORMS = f"Write a folder, a .gguf file, a hub id such as org/name, or {_WHEEL_FORM}."
_WHEEL = re.compile(
    r"wheel://(?P<package>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[A-Za-z0-9][A-Za-z0-9._!+-]*)"
    r"/(?P<member>[^#]+)#sha256=(?P<sha256>[0-9A-Fa-f]{64})"
)
_HUB_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_HUB_ID = re.compile(f"{_HUB_NAME}/{_HUB_NAME}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class WheelMember:
    """One file inside a wheel of a package index.

    Attributes:
        package: Name of the distribution.
        version: Its exact version.
        member: Path of the file inside the wheel, `/` between parts, never leading out of it.
        sha256: SHA-256 of the whole wheel file, lower-case hex, as in pip's `#sha256=` fragments.
    """

    package: str
    version: str
    member: str
    sha256: str


@dataclass(frozen=True)
class SourceRef:
    """A model source after parsing.

    Attributes:
        kind: How the model is fetched and read.
        uri: Normal form: an absolute path, a hub id or a `wheel://` URI. `parse(uri, …)` gives this again.
        path: The folder or GGUF file, absolute; None for the other kinds.
        wheel: The file inside a wheel; None for the other kinds.
    """

    kind: SourceKind
    uri: str
    path: Path | None = None
    wheel: WheelMember | None = None


def parse(source: str, base: Path) -> SourceRef:
    """Read a recipe's `model.source`.

    Args:
        source: What the recipe says.
        base: Folder that relative paths start from: the recipe's own.

    Raises:
        RecipeError: It is malformed, or the path it names is not there.
    """
    if not source.strip():
        raise RecipeError("the model source is empty", hint=_FORMS)
    if source.startswith(WHEEL_SCHEME):
        return _parse_wheel(source)
    if _SCHEME.match(source):
        raise RecipeError(
            "this kind of address cannot be a model source",
            where=source,
            hint=_FORMS,
        )
    path = _local_path(source, base)
    if path.is_dir():
        return SourceRef("folder", str(path), path=path)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise RecipeError(
                "a model source that is a file has to be a .gguf file",
                where=str(path),
                hint="For safetensors name the folder that holds them together with config.json.",
            )
        return SourceRef("gguf", str(path), path=path)
    looks_local = source.startswith((".", "/", "~", "\\")) or source.lower().endswith(".gguf")
    if not looks_local and _HUB_ID.fullmatch(source):
        return SourceRef("hub", source)
    raise RecipeError(
        "there is no such model folder or GGUF file",
        where=str(path),
        hint="Paths are relative to the recipe's folder. A model of the hub is written org/name.",
    )


def _local_path(source: str, base: Path) -> Path:
    try:
        given = Path(source).expanduser()
    except RuntimeError as error:
        raise RecipeError(
            "the home folder in this path is not known", where=source, hint="Write the whole path."
        ) from error
    return (base / given).resolve()


def _parse_wheel(source: str) -> SourceRef:
    match = _WHEEL.fullmatch(source)
    if match is None:
        missing = "#sha256=" not in source
        raise RecipeError(
            "a wheel source needs the wheel's SHA-256" if missing else "this wheel source is malformed",
            where=source,
            hint=f"Write {_WHEEL_FORM}; the hash is that of the wheel file, as `pip hash` prints it.",
        )
    member = match["member"]
    parts = PurePosixPath(member).parts
    if member.startswith("/") or "\\" in member or ".." in parts or str(PurePosixPath(member)) != member:
        raise RecipeError(
            "the path inside the wheel must be relative and must not lead out of it",
            where=source,
            hint=f"Write it as in the wheel's own listing: {_WHEEL_FORM}.",
        )
    if not member.lower().endswith(".gguf"):
        raise RecipeError(
            "only a .gguf file can be taken out of a wheel",
            where=source,
            hint=f"Write {_WHEEL_FORM}.",
        )
    sha256 = match["sha256"].lower()
    package, version = match["package"], match["version"]
    uri = f"{WHEEL_SCHEME}{package}=={version}/{member}#sha256={sha256}"
    return SourceRef("wheel", uri, wheel=WheelMember(package, version, member, sha256))
