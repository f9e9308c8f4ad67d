"""Text files: a document is the whole file, a paragraph or a line."""

from collections.abc import Iterator

from quantflow.data.fields import make_record
from quantflow.data.files import DataFile
from quantflow.data.lines import Lines
from quantflow.data.params import ReadParams
from quantflow.data.record import MAX_DOCUMENT, Mistake, Record


def read_text(lines: Lines, file: DataFile, reading: ReadParams) -> Iterator[Record | Mistake]:
    """Read documents; ends of lines become line feeds, and what is blank around a document is left out.

    A document with a line that cannot be decoded is a mistake as a whole.
    """
    if reading.documents == "line":
        blocks = _blocks(lines, whole=False, per_line=True)
    else:
        blocks = _blocks(lines, whole=reading.documents == "file", per_line=False)
    name = file.name if reading.documents == "file" else None
    for number, block in blocks:
        if isinstance(block, Mistake):
            yield block
        else:
            yield make_record(lines.where(number), name, file.slice, block)


def _blocks(lines: Lines, *, whole: bool, per_line: bool) -> Iterator[tuple[int, str | Mistake]]:
    """Runs of lines, each with the number of its first: all of the file, or what blank lines part."""
    held: list[str] = []
    first = size = 0
    mistake: Mistake | None = None

    def finished() -> tuple[int, str | Mistake]:
        # No stripping of blanks within the first line: indentation may mean something.
        return first, mistake or "\n".join(held).strip("\n").rstrip()

    for number, text, wrong in _pieces(lines):
        if text.strip() or wrong is not None:
            first = first or number
        if first and (whole or text.strip() or wrong is not None):
            mistake = mistake or wrong
            size += len(text) + 1
            if size > MAX_DOCUMENT and mistake is None:
                mistake = Mistake(lines.where(first), _too_long(whole))
            if mistake is None:
                held.append(text)
            else:
                held = []  # nothing of it will be used: do not hold it
        ends = per_line or not (whole or text.strip() or wrong is not None)
        if first and ends:
            yield finished()
            held, first, size, mistake = [], 0, 0, None
    if first:
        yield finished()


def _pieces(lines: Lines) -> Iterator[tuple[int, str, Mistake | None]]:
    """Lines without their ends, of which there are three kinds."""
    for line in lines:
        for text in line.text.rstrip("\r\n").split("\r"):
            yield line.number, text, line.mistake


def _too_long(whole: bool) -> str:
    size = f"longer than {MAX_DOCUMENT >> 20} MiB"
    if whole:
        return f"the file as one document is {size}: set data.documents to paragraph or line"
    return f"the paragraph is {size}: set data.documents to line, or put blank lines between documents"
