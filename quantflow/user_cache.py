"""Where QuantFlow keeps what it fetched for this user, outside of any workspace."""

import os
from pathlib import Path


def user_cache(what: str) -> Path:
    """Folder `quantflow/<what>` in XDG_CACHE_HOME, which is ~/.cache by default; not made here."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "quantflow" / what
