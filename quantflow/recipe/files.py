"""The files that a recipe's paths and globs stand for."""

import glob
import os
from pathlib import Path


class NoFilesError(Exception):
    """A pattern stands for no file; the arguments are message and hint."""


def expand_files(pattern: str, base: Path) -> list[str]:
    """Find what one entry of `data.files` names.

    Args:
        pattern: A path or a glob (`*`, `?`, `[…]`, `**` for any folders), `~` for the home folder.
        base: Folder that relative paths start from.

    Returns:
        Absolute paths of regular files, in no particular order.

    Raises:
        NoFilesError: Nothing matches, or it is a folder.
    """
    try:
        path = Path(os.path.normpath(base / Path(pattern).expanduser()))
    except RuntimeError as error:
        raise NoFilesError("the home folder in this path is not known", "Write the whole path.") from error
    if path.is_dir():
        raise NoFilesError("this is a folder", f"Name the files in it: {Path(pattern) / '*.jsonl'}")
    if path.is_file():
        return [str(path)]
    # glob.glob leaves hidden files alone, as a shell does; Path.glob would take them in.
    found = [match for match in glob.glob(str(path), recursive=True) if Path(match).is_file()]  # noqa: PTH207
    if not found:
        raise NoFilesError(
            f"no file matches `{pattern}`", f"Looked for {path}. Paths are relative to the recipe's folder."
        )
    return found
