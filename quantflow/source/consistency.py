"""Whether config.json and the tensors beside it describe one model, from headers alone.

What config.json claims decides how much is built and allocated later, so that a claim is held against the
files before anything believes it.
"""

import re
from pathlib import Path
from typing import Any

from quantflow.errors import SourceError
from quantflow.model.config import CONFIG_FILE, load_config
from quantflow.model.families import FAMILIES, Family
from quantflow.model.safetensors_file import TensorSpec
from quantflow.model.sizes import linear_sizes
from quantflow.model.weights import SafetensorsReader

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


def check_config(folder: Path, reader: SafetensorsReader) -> None:
    """Hold a config's sizes against the tensors' shapes.

    Args:
        folder: The checkpoint.
        reader: Its tensors.

    Raises:
        SourceError: config.json cannot be read, or says other sizes than the tensors have.
    """
    config = load_config(folder)
    where = str(folder / CONFIG_FILE)
    family = FAMILIES.get(config.model_type)
    hidden = _size(config, "hidden_size", where)
    _check_blocks(_size(config, "num_hidden_layers", where), blocks_of(family, reader), where)
    embedding = _spec(reader, EMBEDDING) or _spec(reader, HEAD)  # of tied ones either may be stored
    if embedding is not None:
        _agree(where, embedding, (_size(config, "vocab_size", where), hidden))
    if family is None:  # what its tensors are called and how large they are, the built model says later
        return
    query, key_value = _attention_widths(config, where)
    sizes = linear_sizes(
        hidden=hidden,
        intermediate=int(config.intermediate_size),
        query=query,
        key_value=key_value,
    )
    for unit in ("qkv", "gate_up"):
        linear = family.units[unit][0]
        spec = _spec(reader, f"{family.block_name(0)}.{linear}.weight")
        if spec is not None:
            _agree(where, spec, sizes[linear.rpartition(".")[2]])


def blocks_of(family: Family | None, reader: SafetensorsReader) -> int:
    """How many decoder blocks have tensors: one more than the highest number.

    Of a family that is not listed, whose blocks' path is not known: at most.
    """
    path = re.escape(family.blocks) if family else r"[^\d]*"
    found = (re.match(rf"{path}\.(\d+)\.", name) for name in reader.names())
    return 1 + max((int(match[1]) for match in found if match), default=-1)


def _check_blocks(claimed: int, found: int, where: str) -> None:
    if claimed < 1 or claimed > found:
        raise SourceError(
            f"config.json says that the model has {claimed} blocks, the weights hold {found}",
            where=where,
            hint="Files are missing, or config.json belongs to another model: get all files of one revision.",
        )


def _size(config: Any, name: str, where: str) -> int:
    value = getattr(config, name, None)
    if type(value) is not int:
        raise SourceError(f"config.json does not say what {name} is", where=where)
    return value


def _attention_widths(config: Any, where: str) -> tuple[int, int]:
    heads = int(config.num_attention_heads)
    if heads < 1:
        raise SourceError(f"config.json says that the model has {heads} attention heads", where=where)
    size = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    return heads * size, int(getattr(config, "num_key_value_heads", None) or heads) * size


def _spec(reader: SafetensorsReader, name: str) -> TensorSpec | None:
    return reader.spec(name) if name in reader.names() else None


def _agree(where: str, spec: TensorSpec, expected: tuple[int, ...]) -> None:
    if spec.shape != expected:
        raise SourceError(
            f"config.json makes the tensor {spec.name} {list(expected)}, its file {list(spec.shape)}",
            where=where,
            hint="Weights and config.json do not belong together: get all files of one revision.",
        )
