"""What is left lying in data folders: each gets its message, its place and exit code 2."""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tests.hostile.ground import FILES, Case, Ground, change_json
from tests.tiny_models import documents

GOOD = "".join(json.dumps({"text": text}) + "\n" for text in documents(30, seed=2)).encode()
CHINESE = "您好，我上周买的恒温器一直连不上网关，指示灯闪了三次蓝光就灭了，请问应该怎么处理？\n"
FRENCH = "Votre commande a été expédiée aujourd'hui, les frais sont à votre charge. À bientôt.\n"


def noise(size: int) -> bytes:
    return bytes((i * 7919 >> 3 ^ i * 104_729) & 255 for i in range(size))


def zipped(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def encrypted(name: str, content: bytes) -> bytes:
    data = bytearray(zipped(name, content))
    data[6] |= 1  # the flag in the entry's own header …
    data[data.rindex(b"PK\x01\x02") + 8] |= 1  # … and in the archive's list
    return bytes(data)


def parquet(**columns: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


@dataclass(frozen=True)
class File:
    """A file, what else the recipe says of data, and what the message has to name: place, and cause."""

    name: str
    content: bytes | Callable[[], bytes]
    where: str
    message: str
    more: str = ""


FILE_CASES = {
    "random bytes": File("a.jsonl", noise(100_000), "a.jsonl:1", "not UTF-8"),
    "random bytes as text": File("a.txt", noise(100_000), "a.txt:1", "not UTF-8"),
    "nul bytes": File("a.txt", bytes(5000), "a.txt", "binary data"),
    "a nul in a text": File("a.txt", b"one\n\ntwo \0 three\n", "a.txt:3", "NUL", "documents: paragraph"),
    "an escaped nul": File("a.jsonl", b'{"text": "a\\u0000b"}\n', "a.jsonl:1", "NUL"),
    "mixed encodings": File(
        "a.jsonl", GOOD + CHINESE.encode() + CHINESE.encode("gb18030") * 5, "a.jsonl:32", "mixes encodings"
    ),
    "an encoding that may be several": File("a.txt", FRENCH.encode("cp1252") * 9, "a.txt:1", "may be any of"),
    "utf-16 without a mark": File("a.jsonl", GOOD.decode().encode("utf-16-le"), "a.jsonl", "UTF-16"),
    "half of a utf-16 pair": File("a.txt", b"\xff\xfeo\x00\n\x00\x00\xd8a\x00", "a.txt:2", "encoding"),
    "another encoding than said": File(
        "a.jsonl", GOOD + '{"text": "größe"}\n'.encode("cp1252"), "a.jsonl:31", "not UTF-8", "encoding: utf-8"
    ),
    "a broken line": File("a.jsonl", GOOD + b'{"text": "\xff"}\n', "a.jsonl:31", "too few to tell"),
    "a line of 50 MB": File(
        "a.jsonl", lambda: GOOD + b'{"text": "' + b"word " * 10_000_000 + b'"}\n', "a.jsonl:31", "8 MiB"
    ),
    "a text of 12 MB": File("a.txt", lambda: b"word word\n" * 1_200_000, "a.txt:1", "data.documents"),
    "an empty file": File("a.jsonl", b"", "data.files", "no document"),
    "blank lines only": File("a.jsonl", b"\n\r\n \n", "data.files", "no document"),
    "a mark and no more": File("a.txt", b"\xef\xbb\xbf", "data.files", "no document"),
    "a cut gz": File("a.jsonl.gz", gzip.compress(GOOD)[:-200], "a.jsonl.gz", "cut short"),
    "a cut bz2": File("a.jsonl.bz2", bz2.compress(GOOD)[:-50], "a.jsonl.bz2", "cut short"),
    "a cut xz": File("a.jsonl.xz", lzma.compress(GOOD)[:-50], "a.jsonl.xz", "cut short"),
    "no gz at all": File("a.jsonl.gz", GOOD, "a.jsonl.gz", "content is not that"),
    "a gz with a plain name": File("a.jsonl", gzip.compress(GOOD), "a.jsonl", ".gz file by its content"),
    "an empty gz": File("a.jsonl.gz", b"", "a.jsonl.gz", "empty"),
    "a damaged gz": File(
        "a.jsonl.gz",
        gzip.compress(GOOD)[:200] + bytes(90) + gzip.compress(GOOD)[290:],
        "a.jsonl.gz",
        "damaged",
    ),
    "a damaged zip": File("a.zip", zipped("a.jsonl", GOOD)[:-40], "a.zip", "damaged"),
    "an encrypted zip": File("a.zip", encrypted("a.jsonl", GOOD), "a.zip/a.jsonl", "encrypted"),
    "a zip of a picture": File(
        "a.zip", zipped("a.png", b"\x89PNG"), "a.zip/a.png", "does not say what it holds"
    ),
    "no parquet": File("a.parquet", GOOD, "a.parquet", "Parquet file cannot be read"),
    "a cut parquet": File(
        "a.parquet", parquet(text=["a"] * 99)[:-9], "a.parquet", "Parquet file cannot be read"
    ),
    "a parquet of other columns": File("a.parquet", parquet(body=["a"]), "a.parquet", "columns are `body`"),
    "a null in a parquet": File("a.parquet", parquet(text=["a", None]), "a.parquet, row 2", "this is null"),
    "a csv that opens a quote": File("a.csv", b'text\na\n"b\nc\n', "a.csv:3", "never closed"),
    "a csv with a cell too many": File("a.csv", b"id,text\n1,a\n2,b,c\n", "a.csv:3", "3 cells"),
    "a csv without a header": File("a.csv", b"1,hello\n2,there\n", "a.csv:1", "there is no column"),
    "deep json": File("a.jsonl", GOOD + b'{"text":' + b"[" * 200_000 + b"\n", "a.jsonl:31", "not valid JSON"),
    "a deep json file": File("a.json", b"[" * 200_000, "a.json:1", "not valid JSON"),
    "a cut json file": File("a.json", b'[{"text": "a"},\n{"text": "b"', "a.json:2", "not valid JSON"),
    "not a number": File("a.jsonl", b'{"text": NaN}\n', "a.jsonl:1", "this is a number"),
    "half of a pair": File("a.jsonl", b'{"text": "\\ud83d"}\n', "a.jsonl:1", "half of a surrogate pair"),
    "a number of 5,000 digits": File(
        "a.jsonl", b'{"text": ' + b"9" * 5000 + b"}", "a.jsonl:1", "not valid JSON"
    ),
    "a role of its own": File(
        "a.jsonl", b'{"messages": [{"role": "bot", "content": "hi"}]}\n', "a.jsonl:1", "data.roles"
    ),
    "a picture": File("a.png", b"\x89PNG", "a.png", "does not say what it holds"),
    "ids for slices": File(
        "a.jsonl",
        b"".join(b'{"text": "text %d", "slice": "%d"}\n' % (i, i) for i in range(1100)),
        "a.jsonl:1001",
        "1000 different slices",
    ),
}


def file_case(name: str, file: File) -> Case:
    """A recipe that reads this file."""

    def spoil(ground: Ground) -> None:
        content = file.content if isinstance(file.content, bytes) else file.content()
        (ground.folder / file.name).write_bytes(content)
        ground.change(FILES, f"[{file.name}]" + (f"\n  {file.more}" if file.more else ""))

    return Case(name, spoil, file.message, 2, file.where)


def no_template(ground: Ground) -> None:
    folder = ground.model()
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    change_json(folder / "tokenizer_config.json", chat_template=None)
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning"}]
    ground.letters(*[{"messages": turns}] * 40)


def letters(*lines: object) -> Callable[[Ground], None]:
    """The letters are these."""
    return lambda ground: ground.letters(*lines)


CASES = [
    *(file_case(name, file) for name, file in FILE_CASES.items()),
    Case("another field", letters({"body": "Good morning"}), "`text`", 2, "letters.jsonl:1"),
    Case(
        "an object in place of a text",
        letters({"text": {"en": "Good morning"}}),
        "has to be",
        2,
        "letters.jsonl:1",
    ),
    Case(
        "a chat of an assistant's own", letters({"messages": "Hi"}), "has to be a list", 2, "letters.jsonl:1"
    ),
    Case("one short document", letters({"text": "Good morning."}), "not enough for one window", 2),
    Case("one document 90 times", letters(*[{"text": documents(1)[0]}] * 90), "not enough for one window", 2),
    Case("chats, and no chat template", no_template, "has no chat template", 2),
]
