"""Changes of a model: defects that a gate has to catch, and harmless ones that it has to let pass."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Planted:
    """A change.

    Attributes:
        change: Changes a copy of the model's folder.
        caught_by: Criterion that has to fail, or the stage that has to refuse it; empty where all must pass.
    """

    change: Callable[[Path], object]
    caught_by: str = ""


def weights(edit: Callable[[Tensors], object], **saving: Any) -> Callable[[Path], None]:
    """A change of tensors."""

    def change(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        edit(tensors)
        save_file({n: t.contiguous() for n, t in tensors.items()}, folder / WEIGHTS, **saving)

    return change


def settings(name: str, edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A change of a JSON file."""

    def change(folder: Path) -> None:
        path = folder / name
        content = json.loads(path.read_text(encoding="utf-8"))
        edit(content)
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")

    return change


def layer(tensors: Tensors, index: int) -> list[str]:
    return [name for name in tensors if name.startswith(f"model.layers.{index}.")]


def noise(share: float, *, only: str = "") -> Callable[[Tensors], None]:
    """Noise of so much of each matrix's own spread."""

    def edit(tensors: Tensors) -> None:
        generator = torch.Generator().manual_seed(0)
        for name, tensor in sorted(tensors.items()):
            if tensor.dim() == 2 and only in name:
                spread = share * tensor.float().std()
                tensor += (spread * torch.randn(tensor.shape, generator=generator)).to(tensor.dtype)

    return edit


def head_zeroed(tensors: Tensors) -> None:
    output = tensors["model.layers.1.self_attn.o_proj.weight"]
    output[:, : output.shape[1] // 4] = 0


def scaled(name: str, factor: float) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        for found in [n for n in tensors if n.endswith(name)]:
            tensors[found] *= factor

    return edit


def swapped(first: int, second: int) -> Callable[[Tensors], None]:
    """Layers in each other's place, as where the files of two shards are exchanged."""

    def edit(tensors: Tensors) -> None:
        for name in layer(tensors, first):
            other = name.replace(f".{first}.", f".{second}.", 1)
            tensors[name], tensors[other] = tensors[other], tensors[name]

    return edit


def another_model(tensors: Tensors) -> None:
    generator = torch.Generator().manual_seed(1)
    for name, tensor in sorted(tensors.items()):
        if tensor.dim() == 2:
            tensors[name] = (tensor.float().std() * torch.randn(tensor.shape, generator=generator)).to(
                tensor.dtype
            )


def rounded(tensors: Tensors) -> None:
    """Three bits, round to nearest, one scale a row: far from what the gate allows."""
    for name, tensor in tensors.items():
        if tensor.dim() == 2 and "layers" in name:
            scale = tensor.abs().amax(1, keepdim=True) / 3
            tensors[name] = (tensor / scale).round().clamp(-4, 3) * scale


def rows_reversed(tensors: Tensors) -> None:
    name = "model.layers.2.self_attn.v_proj.weight"
    tensors[name] = tensors[name].flip(0)


def not_a_number(tensors: Tensors) -> None:
    tensors["model.layers.0.mlp.down_proj.weight"][0, 0] = float("nan")


def larger_vocabulary(folder: Path) -> None:
    name = "model.embed_tokens.weight"
    weights(lambda t: t.update({name: torch.cat([t[name], t[name][:1]])}))(folder)
    settings("config.json", lambda c: c.update(vocab_size=c["vocab_size"] + 1))(folder)


def tokens_swapped(content: dict[str, Any]) -> None:
    vocabulary = content["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.__getitem__)[100:102]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]


def set_template(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "chat_template.jinja").write_text(text)


DEFECTS: Mapping[str, Planted] = {
    "noise-in-one-layer": Planted(weights(noise(0.05, only="layers.2.mlp")), "kl"),
    "head-zeroed": Planted(weights(head_zeroed), "kl"),
    "mlp-zeroed": Planted(weights(scaled("layers.1.mlp.down_proj.weight", 0.0)), "perplexity"),
    "head-scaled": Planted(weights(scaled("model.norm.weight", 1.02)), "kl"),
    "keys-scaled": Planted(weights(scaled("k_proj.weight", 1.1)), "kl"),
    "stale": Planted(weights(noise(0.02)), "kl"),
    "three-bits": Planted(weights(rounded), "perplexity"),
    "shards-swapped": Planted(weights(swapped(0, 3)), "perplexity"),
    "another-model": Planted(weights(another_model), "perplexity"),
    "rows-reversed": Planted(weights(rows_reversed), "kl"),
    # Without its weights the last norm sharpens some predictions and flattens others: the loss need not move.
    "norm-flattened": Planted(weights(lambda t: t["model.norm.weight"].fill_(1.0)), "kl"),
    "epsilon": Planted(settings("config.json", lambda c: c.update(rms_norm_eps=0.1)), "kl"),
    "text-ends-never": Planted(
        settings("generation_config.json", lambda c: c.update(eos_token_id=7)), "identity"
    ),
    "tokens-swapped": Planted(settings("tokenizer.json", tokens_swapped), "identity"),
    "chat-template": Planted(set_template("{{ messages[0].content | upper }}"), "identity"),
    "context-cut": Planted(
        settings("config.json", lambda c: c.update(max_position_embeddings=64)), "identity"
    ),
    "rotary-base": Planted(
        settings("config.json", lambda c: c["rope_parameters"].update(rope_theta=20000.0)), "identity"
    ),
    "bos-added": Planted(
        settings("tokenizer_config.json", lambda c: c.update(add_bos_token=True)), "identity"
    ),
    "sampling": Planted(settings("generation_config.json", lambda c: c.update(do_sample=True)), "identity"),
    "not-a-number": Planted(weights(not_a_number), "measure"),
    "larger-vocabulary": Planted(larger_vocabulary, "measure"),
    "tensor-missing": Planted(weights(lambda t: t.pop("model.layers.3.mlp.up_proj.weight")), "measure"),
    "cut-short": Planted(lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-64]), "assemble"),
}


def in_shards(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    names = sorted(tensors)
    half = len(names) // 2
    shards = {
        "model-00001-of-00002.safetensors": names[:half],
        "model-00002-of-00002.safetensors": names[half:],
    }
    for file, own in shards.items():
        save_file({name: tensors[name] for name in own}, folder / file)
    index = {"weight_map": {name: file for file, own in shards.items() for name in own}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / WEIGHTS).unlink()


def header_told(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt", "made": "elsewhere"})
    with safe_open(folder / WEIGHTS, "pt") as file:
        assert file.metadata()["made"] == "elsewhere"


def untied(folder: Path) -> None:
    weights(lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))(folder)
    settings("config.json", lambda c: c.update(tie_word_embeddings=False))(folder)


HARMLESS: Mapping[str, Planted] = {
    "copy": Planted(lambda folder: None),
    "in-shards": Planted(in_shards),
    "header-told": Planted(header_told),
    "in-double-precision": Planted(weights(lambda t: t.update({n: v.double() for n, v in t.items()}))),
    "head-untied": Planted(untied),
    "config-reordered": Planted(settings("config.json", lambda c: c.update(model_type=c.pop("model_type")))),
    "tokenizer-rewritten": Planted(
        settings(
            "tokenizer.json", lambda c: c["model"].update(merges=[tuple(m) for m in c["model"]["merges"]])
        )
    ),
    "truncation-left-on": Planted(
        settings(
            "tokenizer.json",
            lambda c: c.update(
                truncation={"direction": "Right", "max_length": 64, "strategy": "LongestFirst", "stride": 0}
            ),
        )
    ),
    "defaults-said": Planted(
        settings("generation_config.json", lambda c: c.update(temperature=1.0, top_p=1.0, do_sample=False))
    ),
    "end-token-as-list": Planted(settings("generation_config.json", lambda c: c.update(eos_token_id=[2]))),
    "no-generation-config": Planted(lambda folder: (folder / "generation_config.json").unlink()),
    "a-readme-beside": Planted(lambda folder: (folder / "README.md").write_text("made elsewhere")),
    "another-tool-said": Planted(settings("config.json", lambda c: c.update(transformers_version="5.16.1"))),
}


def plant(model: Path, folder: Path) -> dict[str, Path]:
    """A changed copy of a model for each entry: name → its folder."""
    planted = {}
    for name, entry in {**DEFECTS, **HARMLESS}.items():
        target = Path(shutil.copytree(model, folder / name))
        for path in target.iterdir():
            path.chmod(0o644)
        entry.change(target)
        planted[name] = target
    return planted
