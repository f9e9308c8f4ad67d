"""Peak memory of taking a model of 1.2 billion parameters to INT8 graphs and running them: within 12 GB.

    python benchmarks/onnx_memory.py                     24 layers, 2.4 GB of random 16-bit weights
    python benchmarks/onnx_memory.py --layers 2

Writes a checkpoint of random weights in the shape of a Llama (4.9 GB in float32), then does, each step in a
process of its own: make the float32 graph and hold it against torch (the stage onnx-base), round its weights
to INT8 (`w8`), calibrate and make INT8 codes and ranges (the stage quantize), make the `w8a8` graph of them,
and generate a few tokens with each graph in ONNX Runtime. Remedies are left out: what they hold is torch's,
a block at a time, and not the graph's. Random weights say nothing of quality.

Prints one JSON object as the last line: sizes in bytes and, for every step, wall time and the peak of
resident memory of its process tree (VmHWM, bytes); `peak_bytes` is the largest of these.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this file's folder, in which `onnx` is another benchmark

import numpy as np
from memory import WINDOW, Quiet, Shape, write_model

SHAPE = Shape(
    hidden=2048,
    intermediate=5632,
    heads=32,
    key_value_heads=8,
    head_dim=64,
    vocabulary=32_000,
    tied=False,
)
LAYERS = 24
AIM = 12_000_000_000
PROMPT, GENERATED = 32, 8
GRAPHS = ("fp32", "w8", "w8a8")
STEPS = ("fp32", "w8", "calibrate", "w8a8", *(f"run-{graph}" for graph in GRAPHS))


def prepare(model: Path, work: Path, tokens: int) -> None:
    """Write what the first stages would have: a tokenizer, the source's record, calibration windows."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from quantflow.data.windows import CALIBRATION_FILE, PACKED, make_windows, save_windows
    from quantflow.source.checkpoint import Checkpoint, save_checkpoint

    words = {f"w{number}": number for number in range(SHAPE.vocabulary)}
    wrap: Any = PreTrainedTokenizerFast
    wrap(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")), eos_token="w2").save_pretrained(
        model
    )
    for name in ("source", "data"):
        (work / name).mkdir(parents=True)
    save_checkpoint(
        work / "source", Checkpoint(model, "0" * 64, "folder", str(model), "float16", "llama", 0, 0, {})
    )
    shape = (max(1, tokens // WINDOW), WINDOW)
    windows = list(np.random.default_rng(1).integers(0, SHAPE.vocabulary, shape).astype(np.int32))
    save_windows(work / "data" / CALIBRATION_FILE, make_windows(windows, [PACKED] * len(windows)))


def do(step: str, work: Path) -> None:
    """Do one step."""
    from quantflow.formats.assembly import ARTIFACT_FOLDER
    from quantflow.formats.onnx import assemble, base
    from quantflow.formats.onnx.params import OnnxAssembleParams, OnnxBaseParams, SessionOptions
    from quantflow.quantize import stage as quantize
    from quantflow.quantize.params import QuantizeParams, int8_scheme
    from quantflow.runtime.ort import OnnxModel, generate

    session = SessionOptions(provider="cpu", version="", threads=1)
    inputs = {"source": work / "source", "base": work / "fp32", "data": work / "data"}
    reporter = Quiet(work / "progress" / step)
    reporter.progress_folder.mkdir(parents=True)
    if step.startswith("run-"):
        name = step.removeprefix("run-")
        folder = work / name / (base.BASE_FOLDER if name == "fp32" else ARTIFACT_FOLDER)
        prompt = np.random.default_rng(2).integers(0, SHAPE.vocabulary, PROMPT).tolist()
        print(generate(OnnxModel(folder, session), prompt, GENERATED), file=sys.stderr)
        return
    output = work / step
    output.mkdir()
    if step == "fp32":
        base.run(
            OnnxBaseParams(precision="fp32", provider="cpu", builder="onnxruntime-genai"),
            inputs,
            output,
            reporter,
        )
    elif step == "calibrate":
        params = QuantizeParams(candidates=(int8_scheme("w8a8"),), device="cpu", batch_tokens=2048)
        quantize.run(params, inputs, output, reporter)
    else:
        values = {"values": work / "calibrate"} if step == "w8a8" else {}
        assemble.run(
            OnnxAssembleParams.model_validate({"name": step, "scheme": step, "session": session}),
            inputs | values,
            output,
            reporter,
        )


def measured(step: str, work: Path) -> dict[str, float]:
    """What a step takes, in a process of its own."""
    begun = time.monotonic()
    command = [sys.executable, __file__, "--child", step, str(work)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {"seconds": round(time.monotonic() - begun, 1), "peak_bytes": int(done.stdout.splitlines()[-1])}


def child(step: str, work: Path) -> None:
    """Do a step and print the peak of memory of this process and those that it starts."""
    from quantflow.pipeline.usage import metered

    with metered("cpu") as usage:
        do(step, work)
        peak = usage().peak_memory
    if peak is None:
        raise SystemExit("this system does not tell a process's peak of memory")
    print(peak)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=LAYERS, help="layers of the model")
    parser.add_argument("--tokens", type=int, default=128, help="calibration tokens")
    parser.add_argument(
        "--scratch", type=Path, default=None, help="where to write; three times the float32 model has to fit"
    )
    parser.add_argument("--child", nargs=2, metavar=("STEP", "WORK"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child[0], Path(args.child[1]))
        return
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="onnx-memory-") as folder:
        model, work = Path(folder) / "model", Path(folder) / "work"
        model.mkdir()
        checkpoint_bytes = write_model(model, args.layers, SHAPE)
        prepare(model, work, args.tokens)
        steps = {}
        for step in STEPS:
            steps[step] = measured(step, work)
            print(f"{step}: {steps[step]}", file=sys.stderr)
        graph_bytes = {
            graph: sum(path.stat().st_size for path in (work / graph).glob("*/model.onnx*"))
            for graph in GRAPHS
        }
    peak = max(step["peak_bytes"] for step in steps.values())
    print(
        json.dumps(
            {
                "parameters": checkpoint_bytes // 2,
                "checkpoint_bytes": checkpoint_bytes,
                "graph_bytes": graph_bytes,
                "steps": steps,
                "peak_bytes": peak,
                "aim_bytes": AIM,
            }
        )
    )


if __name__ == "__main__":
    main()
