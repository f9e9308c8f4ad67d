"""Which text encoding a file has: given, marked, UTF-8, or detected where it can be told for certain."""

import codecs
from dataclasses import dataclass
from typing import IO, Literal

import charset_normalizer

from quantflow.data.files import DataFile, explained, open_bytes
from quantflow.data.record import MAX_DOCUMENT
from quantflow.errors import DataError

# Those that business text comes in, first the ones to name where several read a file alike. Their subsets
# (GBK, Big5, Shift-JIS, Latin-1) go by the name of the whole.
CANDIDATES = (
    *("gb18030", "cp950", "cp932", "euc_jp", "cp949"),
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp874"),
    *("koi8_r", "iso8859_2", "iso8859_5", "iso8859_7", "iso8859_15", "mac_roman", "cp437", "cp850", "cp866"),
)
_MARKS = (  # UTF-32's little-endian mark begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    ("\ufeff".encode("gb18030"), "gb18030"),
)
_ASCII = bytes(range(128))
_CHUNK = 1 << 20
_SAMPLE_BYTES = 256 << 10
"""Bytes the detection looks at, from all over the file: enough for statistics of letters, read in no time."""

_LEAST_BYTES = 16
"""Bytes outside ASCII below which nothing is detected: a handful fits many encodings."""

_SURE_BYTES = 24
"""Bytes outside ASCII from which a line that is UTF-8 is not so by chance. Of pieces of Chinese text in
GB18030, the likeliest to be, one in thirty of four such bytes is, one in a thousand of eight, none in 36,000
of sixteen."""

_CHANCE = 0.05
"""Share of lines, short ones, from which they are not UTF-8 by chance either."""

_RIVAL_MESS = 0.05
"""How much more mess (charset-normalizer's measure, 0 to 1) an encoding may make than the best one and still
be taken for possible. On customer letters in fourteen languages this left no wrong one as the only one."""

_ESCAPE = b"\x1b$"
"""What begins Japanese, Chinese or Korean characters in the seven-bit encodings of ISO 2022."""

_MOSTLY_BINARY = 0.1
"""Share of NUL bytes from which a file is no text in any encoding that has ASCII in it."""


@dataclass(frozen=True)
class Encoding:
    """How a file's bytes become characters.

    Attributes:
        codec: Python's name of the encoding.
        told_by: What says so.
        mark: The byte order mark at the beginning of the file; empty where there is none.
    """

    codec: str
    told_by: Literal["given", "mark", "utf-8", "detected"]
    mark: bytes = b""


def encoding_of(file: DataFile, asked: str) -> Encoding:
    """Find the encoding of a file.

    The recipe's encoding is that of all files, so a file that is marked as, or plainly is, another is read as
    what it is. Anything but a marked or UTF-16 file is read to its end for this. Read as UTF-16, a file that
    is not would come out as Chinese characters, and without a mistake.

    Args:
        file: The file.
        asked: The recipe's encoding, or `auto`.

    Raises:
        DataError: It cannot be told for certain, or the file is no text.
    """
    with explained(file.shown):
        with open_bytes(file) as (stream, _):
            head = stream.read(4)
            for mark, codec in _MARKS:
                if head.startswith(mark):
                    same = asked in (codec, codec[: len("utf-16")])
                    return Encoding(codec, "given" if same else "mark", mark)
            if asked.startswith("utf-8"):
                return Encoding(asked, "given")
            if asked.startswith(("utf-16", "utf-32")):
                narrow = _is_narrow(head + stream.read(_CHUNK))
                return Encoding("utf-8", "utf-8") if narrow else Encoding(asked, "given")
            if asked == "auto":
                _refuse_binary(file, head + stream.read(_CHUNK))
        with open_bytes(file) as (stream, _):
            beyond_ascii = _utf8_bytes(file, stream, refuse_escapes=asked == "auto")
        if asked != "auto":
            plainly = beyond_ascii is not None and beyond_ascii >= _SURE_BYTES
            return Encoding("utf-8", "utf-8") if plainly else Encoding(asked, "given")
        if beyond_ascii is not None:
            return Encoding("utf-8", "utf-8")
        with open_bytes(file) as (stream, _):
            sample = _sample(stream)
    if 2 * sample.utf8_lines >= sample.lines:
        return Encoding("utf-8", "utf-8")  # with broken lines, which reading will name
    if sample.surely_utf8 or sample.utf8_lines > _CHANCE * sample.lines:
        other = sample.lines - sample.utf8_lines
        raise DataError(
            f"{sample.utf8_lines} lines of the file are UTF-8 and {other} are not: it mixes encodings",
            where=f"{file.shown}:{sample.first}",
            hint="Convert it to one; or set data.encoding to utf-8 and data.invalid to skip to leave out "
            "the rest.",
        )
    return Encoding(_detect(file, sample), "detected")


def _utf8_bytes(file: DataFile, stream: IO[bytes], *, refuse_escapes: bool) -> int | None:
    """How many bytes outside ASCII a file has that is UTF-8 throughout; None where it is not."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    beyond_ascii = 0
    try:
        while chunk := stream.read(_CHUNK):
            decoder.decode(chunk)
            if refuse_escapes and _ESCAPE in chunk:
                raise DataError(
                    "the file holds escape sequences as of ISO-2022-JP, which look like ASCII and are not",
                    where=file.shown,
                    hint="Set data.encoding, perhaps to iso2022_jp; or to utf-8, if they are meant.",
                )
            if not chunk.isascii():
                beyond_ascii += len(chunk.translate(None, _ASCII))
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return None
    return beyond_ascii


def _is_narrow(chunk: bytes) -> bool:
    """Whether text is UTF-8 and neither UTF-16 nor UTF-32, in which blanks and line ends have NUL bytes."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(chunk)
    except UnicodeDecodeError:
        return False
    return bool(chunk) and b"\0" not in chunk


def _refuse_binary(file: DataFile, chunk: bytes) -> None:
    even, odd = chunk[::2].count(0), chunk[1::2].count(0)
    if even + odd <= _MOSTLY_BINARY * len(chunk):
        return
    # Of ASCII in UTF-16 every second byte is NUL, and always the same one of the two.
    wide = "utf-16-le" if odd > even else "utf-16-be"
    one_sided = min(even, odd) <= _MOSTLY_BINARY * max(even, odd)
    raise DataError(
        "the file is full of NUL bytes: binary data" + (", or UTF-16 without a mark" if one_sided else ""),
        where=file.shown,
        hint=f"If it is text, set data.encoding to {wide}." if one_sided else "Give text, not binary data.",
    )


@dataclass(frozen=True)
class _Sample:
    """Lines with bytes outside ASCII.

    Attributes:
        data: Some of those that are not UTF-8, from all over the file.
        lines: How many there are.
        utf8_lines: How many of them are UTF-8.
        surely_utf8: Whether one of those is too long to be UTF-8 by chance.
        values: Every byte value that occurs in those that are not.
        first: Number of the first line that is not UTF-8.
    """

    data: bytes
    lines: int
    utf8_lines: int
    surely_utf8: bool
    values: frozenset[int]
    first: int


def _sample(stream: IO[bytes]) -> _Sample:
    kept: list[bytes] = []
    size = lines = utf8_lines = number = first = others = 0
    values: set[int] = set()
    every = 1
    surely = False
    while line := stream.readline(MAX_DOCUMENT):
        number += 1
        if line.isascii():
            continue
        lines += 1
        try:
            line.decode("utf-8")
            utf8_lines += 1
            surely = surely or len(line.translate(None, _ASCII)) >= _SURE_BYTES
            continue
        except UnicodeDecodeError:
            first = first or number
        others += 1
        new = not values.issuperset(line)
        if new:
            values.update(line)
        if not new and others % every:
            continue
        part = line if len(line) <= _SAMPLE_BYTES // 4 else _around(line)
        kept.append(part)
        size += len(part)
        if size > 2 * _SAMPLE_BYTES:  # thin out: every second one goes, and from now on half as many come
            every *= 2
            kept = kept[::2]
            size = sum(map(len, kept))
    return _Sample(b"\n".join(kept), lines, utf8_lines, surely, frozenset(values), first)


def _around(line: bytes) -> bytes:
    """The beginning of a very long line, up to a blank, so that no character is cut."""
    piece = line[: _SAMPLE_BYTES // 4]
    end = max(piece.rfind(b" "), piece.rfind(b"\n"), piece.rfind(b","))
    return piece[:end] if end > 0 else piece


def _detect(file: DataFile, sample: _Sample) -> str:
    where = f"{file.shown}:{sample.first}"
    high = len(sample.data.translate(None, _ASCII))
    if high < _LEAST_BYTES:
        raise DataError(
            f"the file is not UTF-8, and {high} bytes outside ASCII are too few to tell what it is",
            where=where,
            hint="Set data.encoding, perhaps to cp1252 (Western Europe) or gb18030 (Chinese).",
        )
    matches = charset_normalizer.from_bytes(
        sample.data, cp_isolation=list(CANDIDATES), steps=20, chunk_size=512, enable_fallback=False
    )
    found = {match.encoding: match.chaos for match in matches}
    if not found:
        raise DataError(
            "the file is not UTF-8, and no other encoding makes sense of it: binary data, or a mixture",
            where=where,
            hint="Save it as UTF-8, or set data.encoding; lines that do not fit it are then named.",
        )
    best = min(found, key=lambda codec: (found[codec], CANDIDATES.index(codec)))
    alike = [codec for codec in CANDIDATES if _read_alike(sample, codec, best)]
    rivals = [c for c, mess in found.items() if mess <= found[best] + _RIVAL_MESS and c not in alike]
    if rivals:
        names = sorted({alike[0], *rivals}, key=CANDIDATES.index)
        raise DataError(
            f"the file is not UTF-8, and may be any of {', '.join(names)}",
            where=where,
            hint=f"Set data.encoding to what it is; {_guess(names)}.",
        )
    return alike[0]


def _guess(names: list[str]) -> str:
    if "cp1252" in names:
        return "cp1252 is what Windows writes in Western Europe and America"
    return f"the likeliest is {names[0]}"


def _read_alike(sample: _Sample, codec: str, other: str) -> bool:
    """Whether two encodings make the same characters of the file.

    For encodings of one byte a character, comparing all byte values that occur settles it for the whole file.
    """
    values = bytes(sorted(sample.values))
    try:
        return sample.data.decode(codec) == sample.data.decode(other) and (
            not _single_byte(codec) or values.decode(codec) == values.decode(other)
        )
    except UnicodeDecodeError:
        return codec == other


def _single_byte(codec: str) -> bool:
    return codec not in CANDIDATES[:5]
