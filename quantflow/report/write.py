"""Puts a report where people and programs read it."""

import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from quantflow.errors import StoreError
from quantflow.pipeline.storage import remedy
from quantflow.report.html import render_html
from quantflow.report.model import Report

JSON_FILE = "report.json"
HTML_FILE = "report.html"
# Longer than any report takes to write: what is older belongs to no running run.
LEFT_SECONDS = 3600
_FRESH = ".new"


def write_report(report: Report, folder: Path) -> None:
    """Write `report.json` and `report.html` into `folder`, both or neither.

    Args:
        report: What to say.
        folder: Appears when both are whole; if it is there, files of an earlier report in it are replaced.

    Raises:
        StoreError: The folder cannot be written.
        ValueError: A figure is not finite, which JSON cannot say and a report must not.
    """
    write_files({JSON_FILE: report_json(report), HTML_FILE: render_html(report)}, folder)


def write_files(contents: Mapping[str, str], folder: Path) -> None:
    """Write files into a folder, all or none; what the folder has of other names stays.

    Args:
        contents: Name → text.
        folder: Appears when all are whole; if it is there, files of these names are replaced.

    Raises:
        StoreError: The folder cannot be written.
    """
    fresh = folder.with_name(f".{folder.name}{_FRESH}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        try:
            fresh.mkdir()
            for name, content in contents.items():
                _write(fresh / name, content.encode("utf-8", errors="replace"))
            _put(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise StoreError(
            f"the report cannot be written: {error.strerror or error}",
            where=str(folder),
            hint=f"What it reports on is done and kept. {remedy(error)}".strip(),
        ) from error


def put_file(path: Path, content: str) -> None:
    """Write one file, whole or not at all: others may read it at any time.

    Raises:
        OSError: It cannot be written.
    """
    fresh = path.with_name(f".{path.name}{_FRESH}")
    try:
        _write(fresh, content.encode("utf-8", errors="replace"))
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def report_json(report: Report) -> str:
    """The content of `report.json`.

    Raises:
        ValueError: A figure is not finite, which JSON cannot say and a report must not.
    """
    # ASCII with escapes: text of models and data sets may hold what no encoding can carry.
    return json.dumps(report.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _put(fresh: Path, folder: Path) -> None:
    """Let the fresh files be those of `folder`."""
    if not folder.exists():
        fresh.rename(folder)
        return
    for path in sorted(fresh.iterdir()):
        path.replace(folder / path.name)


def _sweep(reports: Path) -> None:
    """Remove what runs that were killed while they wrote a report have left."""
    for left in reports.glob(f".*{_FRESH}"):
        with suppress(FileNotFoundError):  # another run may have swept or finished it
            if left.stat().st_mtime < time.time() - LEFT_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
