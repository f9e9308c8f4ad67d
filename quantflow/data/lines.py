"""Lines of a data file, of bounded length, counted and decoded one by one."""

import codecs
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from quantflow.data.encoding import Encoding
from quantflow.data.files import DataFile, explained, open_bytes
from quantflow.data.record import MAX_DOCUMENT, Mistake

_WIDE = ("utf-16", "utf-32")
_CHUNK = 1 << 18
_NAMES = {"utf-8": "UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "gb18030": "GB18030"}


@dataclass(frozen=True)
class Line:
    """One line.

    Attributes:
        number: From 1.
        text: Its characters, the end of the line included; of a line that cannot be decoded, U+FFFD for what
            cannot.
        mistake: Why it cannot be used; None where it can.
    """

    number: int
    text: str
    mistake: Mistake | None = None


class Lines:
    """A file's lines, read as they are asked for.

    Args:
        file: The file.
        encoding: Its encoding.
        stream: Its bytes from the beginning.
        position: Says how many bytes of the file on disk have been read.

    Attributes:
        number: Number of the last line read.
        position: As given.
    """

    def __init__(
        self, file: DataFile, encoding: Encoding, stream: IO[bytes], position: Callable[[], int]
    ) -> None:
        self.number = 0
        self.position = position
        self._file = file
        self._codec = encoding.codec
        stream.read(len(encoding.mark))
        self._stream: IO[bytes] = stream
        if encoding.codec.startswith(_WIDE):
            # An end of line is several bytes there: made into UTF-8 on the way, it is one again.
            self._stream = io.BufferedReader(_Transcoded(stream, encoding.codec))
            self._codec = "utf-8"

    def where(self, number: int) -> str:
        """How messages name a line."""
        return f"{self._file.shown}:{number}"

    def __iter__(self) -> Iterator[Line]:
        """Read on, line by line; what is longer than `MAX_DOCUMENT` is passed over and is a mistake."""
        while raw := self._stream.readline(MAX_DOCUMENT + 1):
            self.number += 1
            if len(raw) > MAX_DOCUMENT:
                self._pass_over(raw)
                message = (
                    f"the line is longer than {MAX_DOCUMENT >> 20} MiB: that is an archive, not a document"
                )
                yield Line(self.number, "", Mistake(self.where(self.number), message))
                continue
            try:
                yield Line(self.number, raw.decode(self._codec))
            except UnicodeDecodeError as error:
                name = _NAMES.get(self._codec, self._codec)
                message = f"not {name} (byte {error.start + 1} of the line)"
                mistake = Mistake(self.where(self.number), message, undecodable=True)
                yield Line(self.number, raw.decode(self._codec, errors="replace"), mistake)

    def chunks(self) -> Iterator[str]:
        """Read on in pieces that end anywhere; the first byte that cannot be decoded ends it.

        Raises:
            UnicodeDecodeError: `open_lines` turns it into a `DataError`.
        """
        decoder = codecs.getincrementaldecoder(self._codec)()
        while raw := self._stream.read(_CHUNK):
            text = decoder.decode(raw)
            yield text
            self.number += text.count("\n")
        yield decoder.decode(b"", final=True)

    def _pass_over(self, raw: bytes) -> None:
        while raw and not raw.endswith(b"\n"):
            raw = self._stream.readline(MAX_DOCUMENT)


@contextmanager
def open_lines(file: DataFile, encoding: Encoding) -> Iterator[Lines]:
    """Open a file and turn whatever goes wrong in reading it into a `DataError` that names file and line."""
    lines: Lines | None = None
    with (
        explained(file.shown, lambda: lines.number if lines else 0),
        open_bytes(file) as (stream, position),
    ):
        lines = Lines(file, encoding, stream, position)
        yield lines


class _Transcoded(io.RawIOBase):
    """A stream of another encoding as UTF-8."""

    def __init__(self, stream: IO[bytes], codec: str) -> None:
        self._stream = stream
        self._codec = codec
        self._decoder = codecs.getincrementaldecoder(codec)()
        self._ready = b""
        self._error: UnicodeDecodeError | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if self._error is not None:
                raise self._error
            raw = self._stream.read(1 << 16)
            try:
                text = self._decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as error:  # first what comes before, so that the line is known
                self._error = error
                text = error.object[: error.start].decode(self._codec)
            self._ready = text.encode("utf-8")
            if not raw:
                break
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count
