"""Finds and reads the reports of earlier runs."""

from pathlib import Path

from pydantic import ValidationError

from quantflow.errors import RecipeError, StoreError
from quantflow.report.model import Report
from quantflow.report.write import JSON_FILE

REPORTS = "reports"
LATEST = "latest"


def find_report(run: str, folder: Path) -> Path:
    """Folder of a run's report.

    Args:
        run: A run id or its beginning, `latest`, `latest:RECIPE`, or a path to a report's folder or file.
        folder: Where `reports/` lies.

    Raises:
        RecipeError: There is no such run, or there are several.
    """
    if Path(run).name == JSON_FILE and Path(run).is_file():
        return Path(run).parent
    if (Path(run) / JSON_FILE).is_file():
        return Path(run)
    known = all_reports(folder)
    if run == LATEST or run.startswith(f"{LATEST}:"):
        recipe = run.removeprefix(LATEST).removeprefix(":")
        known = [path for path in known if recipe in ("", path.parent.name)]
        found = sorted(known, key=lambda path: path.name)[-1:]
    else:
        found = [path for path in known if run and path.name.startswith(run)]
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:3])
        raise RecipeError(f"it is the beginning of {len(found)} runs", where=run, hint=f"Such as {names}.")
    if not found:
        raise RecipeError(
            "there is no report of such a run here",
            where=run,
            hint="Name a run id (`quantflow runs` lists them), `latest`, `latest:RECIPE`, or the folder of a "
            "report.",
        )
    return found[0]


def all_reports(folder: Path) -> list[Path]:
    """Folders of all reports under `reports/`."""
    return [path.parent for path in sorted((folder / REPORTS).glob(f"*/*/{JSON_FILE}"))]


def load_report(folder: Path) -> Report:
    """Read a run's report.json.

    Raises:
        StoreError: It cannot be read, or is not of this version's format.
    """
    path = folder / JSON_FILE
    try:
        return Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise StoreError(f"the report cannot be read: {error.strerror}", where=str(path)) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise StoreError(
            f"it is no report that this version reads: {place}: {first['msg']}",
            where=str(path),
            hint="Another version of QuantFlow wrote it, or it was changed by hand: run the recipe again, "
            "the answer comes from the store.",
        ) from error
