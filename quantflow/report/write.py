"""Puts a report where people and programs read it."""

import json
import os
from pathlib import Path

from quantflow.errors import StoreError
from quantflow.report.html import render_html
from quantflow.report.model import Report

JSON_FILE = "report.json"
HTML_FILE = "report.html"


def write_report(report: Report, folder: Path) -> None:
    """Write `report.json` and `report.html` into `folder`, each complete or not at all.

    Args:
        report: What to say.
        folder: Made if it is not there; files of an earlier report in it are replaced.

    Raises:
        StoreError: The folder cannot be written.
        ValueError: A figure is not finite, which JSON cannot say and a report must not.
    """
    content, page = report_json(report), render_html(report)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / JSON_FILE, content.encode())
        _replace(folder / HTML_FILE, page.encode("utf-8", errors="replace"))
    except OSError as error:
        raise StoreError(
            f"the report cannot be written: {error.strerror or error}",
            where=str(folder),
            hint="Free some space, or run in a folder that you may write to.",
        ) from error


def report_json(report: Report) -> str:
    """The content of `report.json`.

    Raises:
        ValueError: A figure is not finite, which JSON cannot say and a report must not.
    """
    # ASCII with escapes: text of models and data sets may hold what no encoding can carry.
    return json.dumps(report.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"


def _replace(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it, so that a reader sees all of it or none."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
