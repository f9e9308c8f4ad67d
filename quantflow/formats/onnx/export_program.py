"""Makes a graph of a checkpoint with torch.onnx.export; a program of its own, as it holds the model.

`python -m quantflow.formats.onnx.export_program CHECKPOINT FOLDER` writes model.onnx, its tensors and
genai_config.json, with inputs, outputs and constants under the names that the GenAI builder gives them.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache

from quantflow.formats.onnx.params import GENAI_CONFIG, GRAPH_FILE

OPSET = 21  # the builder's; ONNX Runtime's fusions of quantized products are tried with it
REFUSAL = "torch.onnx.export cannot make the graph:"
INPUTS = ("input_ids", "attention_mask")
LAYERS = "past_key_values.{}.key", "past_key_values.{}.value"
PRESENT = "present.{}.key", "present.{}.value"
# Sizes of the call that is traced: all different, and none 0 or 1, which tracing takes for constants.
TRACED_BATCH, TRACED_TOKENS, TRACED_PAST = 2, 3, 5
UNSAID_CONTEXT = 2048
"""Tokens that a model is taken to be made for whose config.json names no end, as BLOOM's."""
_WRAPPED = "model."


class Constants(nn.Module):
    """Parameters under the names that a graph's constants are to have."""

    weight: Tensor
    bias: Tensor

    def __init__(self, **named: Tensor) -> None:
        super().__init__()
        for name, values in named.items():
            self.register_parameter(name, nn.Parameter(values, requires_grad=False))


class Product(nn.Module):
    """A linear layer as a graph is to have it: a product with `….MatMul.weight`, `[in, out]`.

    Args:
        linear: The layer; it gives its weight up.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.MatMul = Constants(weight=linear.weight.detach().t().contiguous())
        bias = linear.bias
        self.Add = None if bias is None else Constants(bias=bias.detach())
        linear.weight = nn.Parameter(torch.empty(0), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in]` → `[..., out]`."""
        product = torch.matmul(x, self.MatMul.get_parameter("weight"))
        return product if self.Add is None else product + self.Add.get_parameter("bias")


class Flat(nn.Module):
    """A causal language model whose cache is a list of tensors: key and value of every block."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: list[Tensor]) -> tuple[Tensor, ...]:
        """Logits of the new tokens, `[batch, tokens, vocab]`, and the cache with them, block by block."""
        cache = DynamicCache()
        for block in range(len(past) // 2):
            cache.update(past[2 * block], past[2 * block + 1], block)
        out = self.model(
            input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True
        )
        present = [part for layer in out.past_key_values.layers for part in (layer.keys, layer.values)]
        return (out.logits, *present)


def export(checkpoint: Path, folder: Path) -> None:
    """Write the graph of a checkpoint.

    Raises:
        SystemExit: torch's exporter does not get through the model; it says why.
    """
    load: Any = AutoModelForCausalLM.from_pretrained
    # What sdpa would become depends on the mask that it is called with while it is traced; eager is plain.
    model = load(
        checkpoint,
        dtype=torch.float32,
        attn_implementation="eager",
        local_files_only=True,
        trust_remote_code=False,
    ).eval()
    cache = _cache_shapes(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            owner, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(owner), leaf, Product(module))
    folder.mkdir(parents=True)
    try:
        _program(model, cache).save(str(folder / GRAPH_FILE), external_data=True)
    except OSError:
        raise
    except Exception as cause:  # tracing raises whatever the model's own code does
        raise SystemExit(f"{REFUSAL} {type(cause).__name__}: {' '.join(str(cause).split())}") from cause
    _name_as_the_builder(folder / GRAPH_FILE)
    config = json.dumps(genai_config(model, cache[0]), indent=1, sort_keys=True)
    (folder / GENAI_CONFIG).write_text(config + "\n", encoding="utf-8")


def genai_config(model: Any, cache: Sequence[int]) -> dict[str, Any]:
    """Settings of ONNX Runtime GenAI for a decoder that it does not know by name.

    Args:
        model: The model.
        cache: Heads and size of a head in the key-value cache.
    """
    config, generation = model.config, model.generation_config
    end = generation.eos_token_id if generation.eos_token_id is not None else config.eos_token_id
    first_end = end[0] if isinstance(end, list) else end
    context = getattr(config, "max_position_embeddings", None) or UNSAID_CONTEXT
    return {
        "model": {
            "type": "decoder",
            "bos_token_id": first_end if config.bos_token_id is None else config.bos_token_id,
            "eos_token_id": end,
            "pad_token_id": first_end if config.pad_token_id is None else config.pad_token_id,
            "context_length": context,
            "vocab_size": config.vocab_size,
            "decoder": {
                "filename": GRAPH_FILE,
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "head_size": cache[1],
                "hidden_size": config.hidden_size,
                "num_attention_heads": config.num_attention_heads,
                "num_key_value_heads": cache[0],
                "num_hidden_layers": config.num_hidden_layers,
                "inputs": {
                    **{name: name for name in INPUTS},
                    "past_key_names": LAYERS[0].format("%d"),
                    "past_value_names": LAYERS[1].format("%d"),
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": PRESENT[0].format("%d"),
                    "present_value_names": PRESENT[1].format("%d"),
                },
            },
        },
        "search": {"do_sample": False, "max_length": context, "past_present_share_buffer": False},
    }


@torch.no_grad()
def _cache_shapes(model: Any) -> list[tuple[int, int]]:
    """Heads and size of a head of every tensor of the cache, by running the model on one token."""
    layers = model(input_ids=torch.zeros(1, 1, dtype=torch.long), use_cache=True).past_key_values.layers
    shapes = [(part.shape[1], part.shape[3]) for layer in layers for part in (layer.keys, layer.values)]
    if len(set(shapes)) != 1:
        raise SystemExit(f"{REFUSAL} parts of its key-value cache differ in shape: {sorted(set(shapes))}")
    return shapes


@torch.no_grad()
def _program(model: Any, cache: list[tuple[int, int]]) -> Any:
    ids = torch.zeros(TRACED_BATCH, TRACED_TOKENS, dtype=torch.long)
    mask = torch.ones(TRACED_BATCH, TRACED_PAST + TRACED_TOKENS, dtype=torch.long)
    past = [torch.zeros(TRACED_BATCH, heads, TRACED_PAST, size) for heads, size in cache]
    blocks = range(len(cache) // 2)
    free = torch.export.Dim.DYNAMIC
    return torch.onnx.export(
        Flat(model).eval(),
        (ids, mask, past),
        dynamo=True,
        opset_version=OPSET,
        input_names=[*INPUTS, *(name.format(block) for block in blocks for name in LAYERS)],
        output_names=["logits", *(name.format(block) for block in blocks for name in PRESENT)],
        dynamic_shapes=({0: free, 1: free}, {0: free, 1: free}, [{0: free, 2: free} for _ in past]),
        verbose=False,
    )


def _name_as_the_builder(path: Path) -> None:
    """Take the wrapper's name off the constants, and where each node is from in this file's code."""
    graph = onnx.load(str(path), load_external_data=False)
    names = {
        constant.name: constant.name.removeprefix(_WRAPPED)
        for constant in graph.graph.initializer
        if constant.name.startswith(_WRAPPED)
    }
    for constant in graph.graph.initializer:
        constant.name = names.get(constant.name, constant.name)
    for node in graph.graph.node:
        for index, given in enumerate(node.input):
            node.input[index] = names.get(given, given)
        del node.metadata_props[:]  # lines of files of this machine
    for value in graph.graph.value_info:
        del value.metadata_props[:]
    path.write_bytes(graph.SerializeToString(deterministic=True))


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path(sys.argv[2]))
