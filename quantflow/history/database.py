"""The history's database: one SQLite file in the workspace, written by several jobs at once."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quantflow.errors import StoreError

HISTORY_FILE = "history.sqlite"
BUSY_SECONDS = 30.0
"""How long a job waits for another one's transaction; one takes milliseconds."""

MIGRATIONS = (
    """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, recipe TEXT NOT NULL, started TEXT NOT NULL, seconds REAL,
        verdict TEXT NOT NULL, exit_code INTEGER NOT NULL, reason TEXT NOT NULL, report TEXT NOT NULL,
        source TEXT, identity TEXT, device TEXT
    );
    CREATE INDEX runs_started ON runs (started);
    CREATE INDEX runs_recipe ON runs (recipe, started);
    CREATE TABLE artifacts (
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, name TEXT NOT NULL, format TEXT NOT NULL,
        verdict TEXT NOT NULL, bytes INTEGER, digest TEXT, perplexity REAL, kl_mean REAL, kl_p99 REAL,
        top1_agreement REAL, PRIMARY KEY (run_id, name)
    );
    CREATE TABLE criteria (
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, position INTEGER NOT NULL,
        artifact TEXT NOT NULL, name TEXT NOT NULL, slice TEXT NOT NULL, metric TEXT NOT NULL,
        baseline REAL, value REAL, delta REAL, ci_low REAL, ci_high REAL, margin REAL, n INTEGER,
        n_clusters INTEGER, verdict TEXT NOT NULL, required INTEGER NOT NULL, PRIMARY KEY (run_id, position)
    );
    CREATE TABLE stages (
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, position INTEGER NOT NULL,
        name TEXT NOT NULL, key TEXT, reused INTEGER NOT NULL, seconds REAL, PRIMARY KEY (run_id, position)
    );
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, recipe TEXT NOT NULL, at TEXT NOT NULL,
        content TEXT NOT NULL, UNIQUE (run_id, at, content)
    );
    CREATE INDEX decisions_recipe ON decisions (recipe);
    """,
)
"""Each brings the schema from one version to the next; what was released is never changed."""


@contextmanager
def opened(workspace: Path) -> Iterator[sqlite3.Connection]:
    """Open the history of a workspace, made or migrated where that is needed.

    What is written inside is kept where the context ends well, all of it or nothing.

    Args:
        workspace: The workspace, `.quantflow`; made if it is not there.

    Raises:
        StoreError: The file cannot be read or written, is damaged, or is of a newer version.
    """
    path = workspace / HISTORY_FILE
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise _broken(path, error) from error
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        _migrate(connection, path)
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise _broken(path, error) from error
    finally:
        connection.close()


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    if _version(connection) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")  # another job may be about to do the same
    version = _version(connection)
    if version > len(MIGRATIONS):
        connection.execute("ROLLBACK")
        raise StoreError(
            f"the history has version {version}, this QuantFlow knows versions up to {len(MIGRATIONS)}",
            where=str(path),
            hint="A newer QuantFlow wrote it: use that one, or move the file away.",
        )
    for script in MIGRATIONS[version:]:
        for statement in filter(str.strip, script.split(";")):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _broken(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"the history cannot be read or written: {error}",
        where=str(path),
        hint="If it is damaged, move it away: `quantflow history --rebuild` makes it anew from reports/.",
    )
