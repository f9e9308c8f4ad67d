"""Peak memory of the data stage on files of growing size: it has to be flat.

    python benchmarks/data_memory.py --megabytes 200 2000 --format txt

Writes a file of documents made up here for each size, runs the stage on it in a process of its own, deletes
the file, and prints one JSON object as the last line: for each size the peak resident memory (VmHWM, bytes),
the seconds, and what was read and drawn; and the growth from the first size to the last.
"""

import argparse
import csv
import gzip
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MEGABYTE = 1_000_000
PARQUET_ROW_GROUP = 16 * MEGABYTE
"""Bytes of text in a row group: below the smallest file measured, so that files differ in groups only."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def documents(seed: int = 0) -> Iterator[str]:
    """Documents of about 1.2 kB without end, of made-up words."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(LETTERS, k=rng.randint(2, 9))) for _ in range(5000)]
    while True:
        yield " ".join(rng.choices(words, k=rng.randint(40, 320)))


def write_file(path: Path, kind: str, size: int) -> int:
    """Write documents until the file holds `size` bytes of text; returns how many there are."""
    made, count = 0, 0
    write: Callable[[str], object]
    if kind == "parquet":
        return _write_parquet(path, size)
    with gzip.open(path, "wt", 1) if kind.endswith(".gz") else path.open("w", encoding="utf-8") as file:
        if kind == "csv":
            table = csv.writer(file)
            table.writerow(["id", "text"])
            write = lambda text: table.writerow([count, text])  # noqa: E731
        elif kind == "txt":
            write = lambda text: file.write(text + "\n\n")  # noqa: E731
        else:
            write = lambda text: file.write(json.dumps({"text": text}) + "\n")  # noqa: E731
        for text in documents():
            write(text)
            made += len(text)
            count += 1
            if made >= size:
                return count
    raise AssertionError("documents never end")


def _write_parquet(path: Path, size: int) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    made, count = 0, 0
    stream = documents()
    with pq.ParquetWriter(path, pa.schema([("text", pa.string())])) as writer:
        while made < size:
            rows: list[str] = []
            group_end = min(size, made + PARQUET_ROW_GROUP)
            while made < group_end:
                rows.append(next(stream))
                made += len(rows[-1])
            writer.write_table(pa.table({"text": rows}))
            count += len(rows)
    return count


def write_source(output: Path) -> None:
    """The output of a source stage with a small tokenizer, trained here on the documents."""
    from itertools import islice

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from quantflow.source.checkpoint import Checkpoint, save_checkpoint

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4000, special_tokens=["<eos>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(islice(documents(), 500), trainer)
    folder = output / "checkpoint"
    wrap: Any = PreTrainedTokenizerFast
    wrap(tokenizer_object=tokenizer, eos_token="<eos>").save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 4000}))
    save_checkpoint(
        output,
        Checkpoint(
            folder=folder,
            identity="0" * 64,
            kind="folder",
            uri="made here",
            dtype="float32",
            model_type="llama",
            parameters=0,
            bytes=0,
            files={},
        ),
    )


class _Silent:
    """A reporter that keeps nothing."""

    progress_folder = Path()

    def event(self, code: str, message: str, **detail: object) -> None:
        print(f"event {code}: {message}", file=sys.stderr)

    def keep(self, write: Callable[[], None]) -> bool:
        write()
        return True

    @contextmanager
    def track(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        yield lambda steps: None


def measure(path: Path, source: Path, windows: int, length: int) -> dict[str, object]:
    """Run the stage here and say what it took."""
    from quantflow.data.documents import load_accounting
    from quantflow.data.stage import run
    from quantflow.pipeline.data_params import data_params
    from quantflow.recipe.data import Calibration, Data, Evaluation

    data = Data(
        files=(str(path),),
        documents="paragraph",
        calibration=Calibration(windows=windows, length=length),
        evaluation=Evaluation(windows=windows, length=length),
    )
    with tempfile.TemporaryDirectory() as output:
        before, started = _peak(), time.monotonic()
        run(data_params(data), {"source": source}, Path(output), _Silent())
        seconds, accounting = time.monotonic() - started, load_accounting(Path(output))
    return {
        "peak_bytes": _peak(),
        "peak_bytes_before": before,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(resource.getrusage(resource.RUSAGE_SELF).ru_utime, 1),
        "documents": accounting.reading.documents,
        "documents_drawn": accounting.total.documents_read,
        "tokens_drawn": accounting.total.tokens_read,
        "windows": {name: split.windows for name, split in accounting.splits.items()},
    }


def _peak() -> int:
    """VmHWM of this process, which has no children, in bytes."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Measure every size and print the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, nargs="+", default=[200, 2000])
    parser.add_argument(
        "--format", default="txt", choices=["txt", "jsonl", "jsonl.gz", "csv", "parquet"], dest="kind"
    )
    parser.add_argument("--windows", type=int, default=512, help="calibration and evaluation windows")
    parser.add_argument("--length", type=int, default=2048, help="their length, tokens")
    parser.add_argument("--folder", type=Path, help="where files are written; a temporary one by default")
    parser.add_argument("--measure", nargs=2, type=Path, metavar=("FILE", "SOURCE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        file, source = given.measure
        print(json.dumps(measure(file, source, given.windows, given.length)))
        return
    sizes = {}
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        source = Path(folder) / "source"
        source.mkdir()
        write_source(source)
        for megabytes in given.megabytes:
            path = Path(folder) / f"documents.{given.kind}"
            write_file(path, given.kind, megabytes * MEGABYTE)
            command = [sys.executable, __file__, "--measure", str(path), str(source)]
            command += ["--windows", str(given.windows), "--length", str(given.length)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            sizes[str(megabytes)] = json.loads(done.stdout.splitlines()[-1]) | {
                "file_bytes": path.stat().st_size
            }
            path.unlink()
    peaks = [int(size["peak_bytes"]) for size in sizes.values()]
    result = {
        "benchmark": "data_memory",
        "format": given.kind,
        "windows": given.windows,
        "length": given.length,
        "megabytes": sizes,
        "growth_bytes": peaks[-1] - peaks[0],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
