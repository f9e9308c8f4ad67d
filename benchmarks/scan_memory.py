"""Peak memory of a streamed scan of a model in the shape of Llama-3.2-3B.

    python benchmarks/scan_memory.py                     28 layers, 6.4 GB of random weights
    python benchmarks/scan_memory.py --layers 4 --tokens 256

Writes the random checkpoint of `memory.py`, rounds it to four bits in groups of 128, and scans it in a
process of its own by the default method: Fisher's pass, and exact scores of the units that decide which
twelve are the most sensitive. Random weights say nothing of sensitivity, and all of memory. Prints one JSON
object as the last line: the checkpoint's size, layers, tokens, forwards, and the scan's peak of resident
memory (VmHWM, bytes).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from memory import LAYERS, VOCABULARY, WINDOW, Quiet, write_model

SCHEME = {"method": "rtn", "bits": 4, "group_size": 128}
WORST = 12


def prepare(model: Path, work: Path, tokens: int) -> None:
    """Write the source, data and codes that a scan reads."""
    from quantflow.data.windows import (
        CALIBRATION_FILE,
        PACKED,
        SELECTION_FILE,
        make_windows,
        save_windows,
    )
    from quantflow.quantize import stage
    from quantflow.quantize.params import QuantizeParams, Scheme
    from quantflow.source.checkpoint import Checkpoint, save_checkpoint

    folders = {name: work / name for name in ("source", "data", "codes", "progress")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    record = Checkpoint(model, "0" * 64, "folder", str(model), "float16", "llama", 0, 0, {})
    save_checkpoint(folders["source"], record)
    shape = (max(2, tokens // WINDOW), WINDOW)
    windows = list(np.random.default_rng(1).integers(0, VOCABULARY, shape).astype(np.int32))
    save_windows(folders["data"] / CALIBRATION_FILE, make_windows(windows, [PACKED] * len(windows)))
    save_windows(folders["data"] / SELECTION_FILE, make_windows(windows, range(len(windows))))
    params = QuantizeParams(candidates=(Scheme.model_validate(SCHEME),), device="cpu", batch_tokens=2048)
    stage.run(params, folders, folders["codes"], Quiet(folders["progress"]))


def scan(work: Path, tokens: int) -> dict[str, float]:
    """Scan; returns forwards and this process's peak of resident memory, bytes."""
    from quantflow.quantize.params import Scheme
    from quantflow.sensitivity import scan as stage
    from quantflow.sensitivity import settle_stage
    from quantflow.sensitivity.params import ChoiceParams, ScanParams, SettleParams
    from quantflow.sensitivity.record import load_scan

    scheme = Scheme.model_validate(SCHEME)
    params = ScanParams(precisions=(scheme,), tokens=tokens, device="cpu", batch_tokens=2048)
    choice = ChoiceParams(precisions=(scheme.id,), policy="top_k", top_k=WORST)
    inputs = {name: work / name for name in ("source", "data", "codes", "scan")}
    outputs = [work / "scan", work / "settle"]
    for output in outputs:
        output.mkdir()
        output.with_suffix(".progress").mkdir()
    estimated, settled = outputs
    stage.run(params, inputs, estimated, Quiet(estimated.with_suffix(".progress")))
    settling = SettleParams(scan=params, choices=(choice,))
    settle_stage.run(settling, inputs, settled, Quiet(settled.with_suffix(".progress")))
    record = load_scan(settled)
    status = Path("/proc/self/status").read_text()
    peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    exact = sum(score.method == "exact" for score in record.scores)
    return {
        "scan_peak_bytes": peak,
        "forwards": record.forwards,
        "selection_forwards": record.selection_forwards,
        "exact_units": exact,
    }


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=LAYERS, help="layers of the model")
    parser.add_argument("--tokens", type=int, default=512, help="tokens to scan on")
    parser.add_argument("--scratch", type=Path, default=None, help="where to write; twice the model fits")
    parser.add_argument("--prepare", nargs=2, metavar=("MODEL", "WORK"), help=argparse.SUPPRESS)
    parser.add_argument("--scan", metavar="WORK", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.prepare:
        prepare(Path(args.prepare[0]), Path(args.prepare[1]), args.tokens)
        return
    if args.scan:
        print(json.dumps(scan(Path(args.scan), args.tokens)))
        return
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="scan-memory-") as folder:
        model, work = Path(folder) / "model", Path(folder) / "work"
        model.mkdir()
        size = write_model(model, args.layers)
        command = [sys.executable, __file__, "--tokens", str(args.tokens)]
        subprocess.run([*command, "--prepare", str(model), str(work)], check=True)
        done = subprocess.run([*command, "--scan", str(work)], stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({"checkpoint_bytes": size, "layers": args.layers, "tokens": args.tokens, **found}))


if __name__ == "__main__":
    main()
