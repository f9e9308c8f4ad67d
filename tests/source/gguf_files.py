"""Tiny GGUF files of our own making, written with the gguf package as llama.cpp's converter would."""

import json
from pathlib import Path
from typing import Any

import gguf
import torch
from gguf import GGMLQuantizationType as Type
from transformers import PreTrainedTokenizerFast

NORMAL, CONTROL = 1, 3


def write_gguf(
    path: Path,
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    *,
    matrices: Type = Type.F16,
    overrides: dict[str, torch.Tensor | None] | None = None,
    extra: dict[str, Any] | None = None,
    split_rule: str = "default",
) -> Path:
    """Write a transformers Llama with tied embeddings as a GGUF file; returns its path.

    Args:
        path: File to write.
        model: A LlamaForCausalLM.
        tokenizer: Byte-level BPE.
        matrices: Storage type of everything two-dimensional; norms are F32.
        overrides: GGUF tensor name → values to write instead of the model's; None to leave it out.
        extra: Further metadata: int, float, bool or str.
        split_rule: What the file calls the rule that text is split by before merging.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer, split_rule)
    adders: dict[type, Any] = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
    for key, value in (extra or {}).items():
        adders.get(type(value), writer.add_float32)(key, value)
    for name, tensor in (_tensors(model) | (overrides or {})).items():
        if tensor is None:
            continue
        values = tensor.float().numpy()
        type_ = matrices if values.ndim == 2 else Type.F32
        writer.add_tensor(name, gguf.quants.quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: Any, tokenizer: PreTrainedTokenizerFast, split_rule: str) -> None:
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = sorted(described["model"]["vocab"], key=described["model"]["vocab"].__getitem__)
    special = {entry["content"] for entry in described["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split_rule)
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token in special else NORMAL for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in described["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(str(tokenizer.chat_template))


def _tensors(model: Any) -> dict[str, torch.Tensor | None]:
    config, weights = model.config, model.state_dict()
    tensors: dict[str, torch.Tensor | None] = {
        "token_embd.weight": weights["model.embed_tokens.weight"],
        "output_norm.weight": weights["model.norm.weight"],
    }
    names = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    for layer in range(config.num_hidden_layers):
        for ours, theirs in names.items():
            weight = weights[f"model.layers.{layer}.{theirs}.weight"]
            if ours in ("attn_q", "attn_k"):
                heads = config.num_attention_heads if ours == "attn_q" else config.num_key_value_heads
                weight = _interleaved(weight, heads)
            tensors[f"blk.{layer}.{ours}.weight"] = weight
    return tensors


def _interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """llama.cpp's order of rows: pairs that rotate together lie side by side."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
