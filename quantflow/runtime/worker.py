"""A worker process that answers requests in JSON lines, and never outlives the process that started it."""

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from quantflow.errors import ArtifactError

# Lines of a worker's log that an error repeats, and characters of each: the last ones say what happened.
LOG_LINES, LOG_WIDTH = 6, 300
_PIECE = 1 << 16  # bytes read at once
_GRACE = 5.0  # seconds that a worker has to end by itself


class WorkerFailedError(ArtifactError):
    """The worker said that it could not do what it was asked.

    Args:
        kind: Class of the error it met.
        message: What that said.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Worker:
    """A running worker; a context manager that ends it.

    Args:
        command: Program and arguments.
        log: File that its standard error goes to.
        environment: Its environment variables.

    Attributes:
        log: The same file.
        pid: Its process, the leader of a group of its own.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as file:
            # A session of its own: Ctrl-C reaches us only, and we end it with all that it started. It ends by
            # itself when its standard input does, which the kernel closes however this process ends.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=dict(environment),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, request: Mapping[str, Any], timeout: float) -> Any:
        """Send a request and wait for its answer.

        Args:
            request: What the worker is to do.
            timeout: Seconds to wait.

        Raises:
            WorkerFailedError: It says that it could not.
            ArtifactError: It died, or did not answer in time; it is ended then.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:  # the pipe is broken: it has died
            raise self._dead() from error
        reply: dict[str, Any] = json.loads(self._line(time.monotonic() + timeout, timeout))
        if "error" in reply:
            raise WorkerFailedError(str(reply["error"]), str(reply.get("message", "")))
        return reply["ok"]

    def close(self) -> None:
        """End it and all that it started."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def _line(self, deadline: float, timeout: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._read:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    message = f"the runtime gave no answer within {timeout:.0f} s"
                    self.close()
                    raise ArtifactError(message, hint=self._last_words())
                piece = os.read(self._process.stdout.fileno(), _PIECE)
                if not piece:
                    raise self._dead()
                self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _dead(self) -> ArtifactError:
        self.close()
        code = self._process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        more = " (memory may have run out)" if code == -signal.SIGKILL else ""
        return ArtifactError(f"the runtime's process {how}{more}", hint=self._last_words())

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line.strip()[:LOG_WIDTH] for line in lines if line.strip()][-LOG_LINES:]
        return "\n  ".join(["Its last words:", *said]) if said else "It said nothing."
