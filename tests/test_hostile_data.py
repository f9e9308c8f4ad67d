"""What is left lying in data folders: each gets its message, its place and exit code 2, and no trace."""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.test_run import Command
from tests.tiny_models import documents
from tests.tiny_run import RECIPE

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
class Case:
    """A file, what else the recipe says of data, and what the message has to name: place, and cause."""

    name: str
    content: bytes | Callable[[], bytes]
    where: str
    message: str
    more: str = ""


CASES = {
    "random bytes": Case("a.jsonl", noise(100_000), "a.jsonl:1", "not UTF-8"),
    "random bytes as text": Case("a.txt", noise(100_000), "a.txt:1", "not UTF-8"),
    "nul bytes": Case("a.txt", bytes(5000), "a.txt", "binary data"),
    "a nul in a text": Case("a.txt", b"one\n\ntwo \0 three\n", "a.txt:3", "NUL", "documents: paragraph"),
    "an escaped nul": Case("a.jsonl", b'{"text": "a\\u0000b"}\n', "a.jsonl:1", "NUL"),
    "mixed encodings": Case(
        "a.jsonl", GOOD + CHINESE.encode() + CHINESE.encode("gb18030") * 5, "a.jsonl:32", "mixes encodings"
    ),
    "an encoding that may be several": Case("a.txt", FRENCH.encode("cp1252") * 9, "a.txt:1", "may be any of"),
    "utf-16 without a mark": Case("a.jsonl", GOOD.decode().encode("utf-16-le"), "a.jsonl", "UTF-16"),
    "half of a utf-16 pair": Case("a.txt", b"\xff\xfeo\x00\n\x00\x00\xd8a\x00", "a.txt:2", "encoding"),
    "another encoding than said": Case(
        "a.jsonl", GOOD + '{"text": "größe"}\n'.encode("cp1252"), "a.jsonl:31", "not UTF-8", "encoding: utf-8"
    ),
    "a broken line": Case("a.jsonl", GOOD + b'{"text": "\xff"}\n', "a.jsonl:31", "too few to tell"),
    "a line of 50 MB": Case(
        "a.jsonl", lambda: GOOD + b'{"text": "' + b"word " * 10_000_000 + b'"}\n', "a.jsonl:31", "8 MiB"
    ),
    "a text of 50 MB": Case("a.txt", lambda: b"word word\n" * 5_000_000, "a.txt:1", "data.documents"),
    "an empty file": Case("a.jsonl", b"", "data.files", "no document"),
    "blank lines only": Case("a.jsonl", b"\n\r\n \n", "data.files", "no document"),
    "a mark and no more": Case("a.txt", b"\xef\xbb\xbf", "data.files", "no document"),
    "a cut gz": Case("a.jsonl.gz", gzip.compress(GOOD)[:-200], "a.jsonl.gz", "cut short"),
    "a cut bz2": Case("a.jsonl.bz2", bz2.compress(GOOD)[:-50], "a.jsonl.bz2", "cut short"),
    "a cut xz": Case("a.jsonl.xz", lzma.compress(GOOD)[:-50], "a.jsonl.xz", "cut short"),
    "no gz at all": Case("a.jsonl.gz", GOOD, "a.jsonl.gz", "content is not that"),
    "a gz with a plain name": Case("a.jsonl", gzip.compress(GOOD), "a.jsonl", ".gz file by its content"),
    "an empty gz": Case("a.jsonl.gz", b"", "a.jsonl.gz", "empty"),
    "a damaged gz": Case(
        "a.jsonl.gz",
        gzip.compress(GOOD)[:200] + bytes(90) + gzip.compress(GOOD)[290:],
        "a.jsonl.gz",
        "damaged",
    ),
    "a damaged zip": Case("a.zip", zipped("a.jsonl", GOOD)[:-40], "a.zip", "damaged"),
    "an encrypted zip": Case("a.zip", encrypted("a.jsonl", GOOD), "a.zip/a.jsonl", "encrypted"),
    "a zip of a picture": Case(
        "a.zip", zipped("a.png", b"\x89PNG"), "a.zip/a.png", "does not say what it holds"
    ),
    "no parquet": Case("a.parquet", GOOD, "a.parquet", "Parquet file cannot be read"),
    "a cut parquet": Case(
        "a.parquet", parquet(text=["a"] * 99)[:-9], "a.parquet", "Parquet file cannot be read"
    ),
    "a parquet of other columns": Case("a.parquet", parquet(body=["a"]), "a.parquet", "columns are `body`"),
    "a null in a parquet": Case("a.parquet", parquet(text=["a", None]), "a.parquet, row 2", "this is null"),
    "a csv that opens a quote": Case("a.csv", b'text\na\n"b\nc\n', "a.csv:3", "never closed"),
    "a csv with a cell too many": Case("a.csv", b"id,text\n1,a\n2,b,c\n", "a.csv:3", "3 cells"),
    "a csv without a header": Case("a.csv", b"1,hello\n2,there\n", "a.csv:1", "there is no column"),
    "deep json": Case("a.jsonl", GOOD + b'{"text":' + b"[" * 200_000 + b"\n", "a.jsonl:31", "not valid JSON"),
    "a deep json file": Case("a.json", b"[" * 200_000, "a.json:1", "not valid JSON"),
    "a cut json file": Case("a.json", b'[{"text": "a"},\n{"text": "b"', "a.json:2", "not valid JSON"),
    "not a number": Case("a.jsonl", b'{"text": NaN}\n', "a.jsonl:1", "this is a number"),
    "half of a pair": Case("a.jsonl", b'{"text": "\\ud83d"}\n', "a.jsonl:1", "half of a surrogate pair"),
    "a number of 5,000 digits": Case(
        "a.jsonl", b'{"text": ' + b"9" * 5000 + b"}", "a.jsonl:1", "not valid JSON"
    ),
    "a role of its own": Case(
        "a.jsonl", b'{"messages": [{"role": "bot", "content": "hi"}]}\n', "a.jsonl:1", "data.roles"
    ),
    "a picture": Case("a.png", b"\x89PNG", "a.png", "does not say what it holds"),
    "ids for slices": Case(
        "a.jsonl",
        b"".join(b'{"text": "text %d", "slice": "%d"}\n' % (i, i) for i in range(1100)),
        "a.jsonl:1001",
        "1000 different slices",
    ),
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, so that the model is read once."""
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture
def command(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    yield Command(workspace, capsys, monkeypatch)


@pytest.mark.parametrize("kind", CASES)
def test_a_hostile_file_gets_a_message_with_its_place_and_exit_code_2(
    command: Command, tiny_llama: Path, tmp_path: Path, kind: str
) -> None:
    case = CASES[kind]
    content = case.content if isinstance(case.content, bytes) else case.content()
    (tmp_path / case.name).write_bytes(content)
    text = RECIPE.format(model=tiny_llama, max_increase=0.5, max_mean=0.5)
    text = text.replace("[letters.jsonl]", f"[{case.name}]" + (f"\n  {case.more}" if case.more else ""))
    (tmp_path / "tiny.yaml").write_text(text)
    assert command("run", str(tmp_path / "tiny.yaml"), "--quiet") == 2
    place = case.where if case.where.startswith("data.") else f"{tmp_path}/{case.where}"
    complaint = command.err.partition("quantflow: ")[2]
    assert place in complaint
    assert case.message in complaint
    assert "\n  " in complaint  # what to do about it
    assert len(complaint) < 3000
