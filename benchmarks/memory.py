"""Peak memory of making an AWQ and a GPTQ artifact of a model that is larger than that: flat in depth.

    python benchmarks/memory.py                       Llama-3.2-3B's shape, 6.4 GB of random weights
    python benchmarks/memory.py --layers 4 --depths 1 2

Writes a sharded float16 checkpoint of random weights in the shape of Llama-3.2-3B, then runs, in a process
of its own for each format, what makes the artifact of it: the quantize and assemble stages over a few
calibration tokens; they start no other. Prints one JSON object as the last line: the checkpoint's size, each
format's peak of resident memory (VmHWM, bytes), and the larger of the two for models of fewer layers,
`peak_by_depth`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import JsonValue

LAYERS, VOCABULARY = 28, 128_256
SHARD_BYTES = 2 << 30
WINDOW = 64
# Numbers that weights are cut from, at places of their own.
POOL = 1 << 25
WEIGHT_STD = 0.02
SCHEMES = {
    "awq": {"method": "awq", "bits": 4, "group_size": 128},
    "gptq": {"method": "gptq", "bits": 4, "group_size": 128, "symmetric": True, "scale_search": "mse"},
}


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama."""

    hidden: int = 3072
    intermediate: int = 8192
    heads: int = 24
    key_value_heads: int = 8
    head_dim: int = 128
    vocabulary: int = VOCABULARY
    tied: bool = True


def write_model(folder: Path, layers: int, size: Shape = Shape()) -> int:
    """Write config.json, shards and their index; returns the weights' size in bytes."""
    import torch

    from quantflow.model.safetensors_file import TensorSpec, write_safetensors

    hidden, intermediate = size.hidden, size.intermediate
    query, key_value = size.heads * size.head_dim, size.key_value_heads * size.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (size.vocabulary, hidden)}
    for index in range(layers):
        block = f"model.layers.{index}"
        shapes |= {
            f"{block}.self_attn.q_proj.weight": (query, hidden),
            f"{block}.self_attn.k_proj.weight": (key_value, hidden),
            f"{block}.self_attn.v_proj.weight": (key_value, hidden),
            f"{block}.self_attn.o_proj.weight": (hidden, query),
            f"{block}.mlp.gate_proj.weight": (intermediate, hidden),
            f"{block}.mlp.up_proj.weight": (intermediate, hidden),
            f"{block}.mlp.down_proj.weight": (hidden, intermediate),
            f"{block}.input_layernorm.weight": (hidden,),
            f"{block}.post_attention_layernorm.weight": (hidden,),
        }
    shapes["model.norm.weight"] = (hidden,)
    if not size.tied:
        shapes["lm_head.weight"] = (size.vocabulary, hidden)
    pool = (torch.randn(POOL, generator=torch.Generator().manual_seed(0)) * WEIGHT_STD).half()
    place = np.random.default_rng(0)

    def pieces(specs: list[TensorSpec]) -> Iterator[tuple[str, torch.Tensor]]:
        for spec in specs:
            left = spec.bytes // 2
            while left:
                begin = int(place.integers(POOL // 2))
                piece = pool[begin : begin + min(left, POOL // 2)]
                yield spec.name, torch.ones_like(piece) if "norm" in spec.name else piece
                left -= len(piece)

    cuts: list[list[TensorSpec]] = [[]]
    for name, shape in shapes.items():
        spec = TensorSpec(name, torch.float16, shape)
        if cuts[-1] and sum(s.bytes for s in cuts[-1]) + spec.bytes > SHARD_BYTES:
            cuts.append([])
        cuts[-1].append(spec)
    weight_map = {}
    for number, specs in enumerate(cuts, start=1):
        shard = f"model-{number:05d}-of-{len(cuts):05d}.safetensors"
        write_safetensors(folder / shard, specs, pieces(specs), {"format": "pt"})
        weight_map |= dict.fromkeys((spec.name for spec in specs), shard)
    _write_index(folder, weight_map, layers, size)
    return sum(spec.bytes for specs in cuts for spec in specs)


def shallower(model: Path, folder: Path, layers: int) -> None:
    """The model's first layers, as a model of its own: links to its shards, with a shorter index."""
    weight_map = json.loads((model / "model.safetensors.index.json").read_text())["weight_map"]
    left = {
        name: shard
        for name, shard in weight_map.items()
        if not name.startswith("model.layers.") or int(name.split(".")[2]) < layers
    }
    for shard in set(left.values()):
        (folder / shard).symlink_to(model / shard)
    _write_index(folder, left, layers, Shape())


def _write_index(folder: Path, weight_map: dict[str, str], layers: int, size: Shape) -> None:
    from transformers import LlamaConfig

    LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        head_dim=size.head_dim,
        tie_word_embeddings=size.tied,
        architectures=["LlamaForCausalLM"],
        dtype="float16",
    ).save_pretrained(folder)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )


class Quiet:
    """A reporter that keeps progress and passes events on to stderr."""

    def __init__(self, folder: Path) -> None:
        self.progress_folder = folder

    def event(self, code: str, message: str, **detail: JsonValue) -> None:
        """Print it."""
        print(f"{code}: {message}", file=sys.stderr)

    def keep(self, write: Callable[[], None]) -> bool:
        """Keep it."""
        write()
        return True

    @contextmanager
    def track(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Say what begins."""
        print(f"{what} ({total})", file=sys.stderr)
        yield lambda steps: None


def make_artifact(model: Path, work: Path, kind: str, tokens: int) -> int:
    """Run the stages; returns this process's peak of resident memory, bytes."""
    from quantflow.data.windows import CALIBRATION_FILE, PACKED, make_windows, save_windows
    from quantflow.formats import assemble
    from quantflow.formats.params import AssembleParams
    from quantflow.quantize import stage
    from quantflow.quantize.params import QuantizeParams, Scheme
    from quantflow.source.checkpoint import Checkpoint, save_checkpoint

    folders = {name: work / name for name in ("source", "data", "codes", "artifact", "progress")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    record = Checkpoint(model, "0" * 64, "folder", str(model), "float16", "llama", 0, 0, {})
    save_checkpoint(folders["source"], record)
    windows = (
        np.random.default_rng(1).integers(0, VOCABULARY, (max(1, tokens // WINDOW), WINDOW)).astype(np.int32)
    )
    save_windows(folders["data"] / CALIBRATION_FILE, make_windows(list(windows), [PACKED] * len(windows)))
    scheme, reporter = Scheme.model_validate(SCHEMES[kind]), Quiet(folders["progress"])
    stage.run(
        QuantizeParams(candidates=(scheme,), device="cpu", batch_tokens=2048),
        folders,
        folders["codes"],
        reporter,
    )
    params = AssembleParams.model_validate({"name": kind, "format": kind, "scheme": scheme})
    assemble.run(params, folders, folders["artifact"], reporter)
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def peak(model: Path, kind: str, tokens: int, scratch: Path) -> int:
    """What `make_artifact` takes in a process of its own."""
    with tempfile.TemporaryDirectory(dir=scratch) as work:
        command = [sys.executable, __file__, "--child", kind, str(model), work, "--tokens", str(tokens)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.splitlines()[-1])


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=LAYERS, help="layers of the whole model")
    parser.add_argument(
        "--depths", type=int, nargs="*", default=[2, 8], help="layers of smaller ones beside it"
    )
    parser.add_argument("--tokens", type=int, default=512, help="calibration tokens")
    parser.add_argument(
        "--scratch", type=Path, default=None, help="where to write; twice the model has to fit"
    )
    parser.add_argument("--child", nargs=3, metavar=("FORMAT", "MODEL", "WORK"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        kind, model, work = args.child
        print(make_artifact(Path(model), Path(work), kind, args.tokens))
        return
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="memory-") as folder:
        scratch = Path(folder)
        model = scratch / "model"
        model.mkdir()
        size = write_model(model, args.layers)
        by_depth = []
        for layers in sorted(args.depths):
            small = scratch / f"depth-{layers}"
            small.mkdir()
            shallower(model, small, layers)
            by_depth.append([layers, max(peak(small, kind, args.tokens, scratch) for kind in SCHEMES)])
            print(f"{layers} layers: {by_depth[-1][1]:,} bytes", file=sys.stderr)
        peaks = {kind: peak(model, kind, args.tokens, scratch) for kind in SCHEMES}
    by_depth.append([args.layers, max(peaks.values())])
    result = {f"{kind}_peak_bytes": peaks[kind] for kind in SCHEMES}
    print(json.dumps({"checkpoint_bytes": size, **result, "peak_by_depth": by_depth}))


if __name__ == "__main__":
    main()
