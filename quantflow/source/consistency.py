"""Whether config.json and the tensors beside it describe one model, from headers alone.

What config.json claims decides how much is built and allocated later, so that a claim is held against the
files before anything believes it.
"""

from pathlib import Path
from typing import Any

from quantflow.errors import SourceError
from quantflow.model.config import CONFIG_FILE, load_config
from quantflow.model.families import Family, family_of
from quantflow.model.safetensors_file import TensorSpec
from quantflow.model.weights import SafetensorsReader

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


def check_config(folder: Path, reader: SafetensorsReader) -> None:
    """Hold a config's sizes against the tensors' shapes.

    Args:
        folder: The checkpoint.
        reader: Its tensors.

    Raises:
        RecipeError: The architecture is not supported.
        SourceError: config.json cannot be read, or says other sizes than the tensors have.
    """
    config = load_config(folder)
    family = family_of(config.model_type)
    where = str(folder / CONFIG_FILE)
    _check_blocks(int(config.num_hidden_layers), family, reader, where)
    embedding = _spec(reader, EMBEDDING) or _spec(reader, HEAD)  # of tied ones either may be stored
    if embedding is not None:
        _agree(where, embedding, (int(config.vocab_size), int(config.hidden_size)))
    query = _spec(reader, f"{family.block_name(0)}.{family.units['qkv'][0]}.weight")
    if query is not None:
        _agree(where, query, (_query_width(config, where), int(config.hidden_size)))
    gate = _spec(reader, f"{family.block_name(0)}.{family.units['gate_up'][0]}.weight")
    if gate is not None:
        _agree(where, gate, (int(config.intermediate_size), int(config.hidden_size)))


def blocks_of(family: Family, reader: SafetensorsReader) -> int:
    """How many decoder blocks have tensors: one more than the highest number."""
    prefix = f"{family.blocks}."
    numbers = {
        name.removeprefix(prefix).partition(".")[0] for name in reader.names() if name.startswith(prefix)
    }
    return 1 + max((int(number) for number in numbers if number.isdecimal()), default=-1)


def _check_blocks(claimed: int, family: Family, reader: SafetensorsReader, where: str) -> None:
    found = blocks_of(family, reader)
    if claimed < 1 or claimed > found:
        raise SourceError(
            f"config.json says that the model has {claimed} blocks, the weights hold {found}",
            where=where,
            hint="Files are missing, or config.json belongs to another model: get all files of one revision.",
        )


def _query_width(config: Any, where: str) -> int:
    heads = int(config.num_attention_heads)
    if heads < 1:
        raise SourceError(f"config.json says that the model has {heads} attention heads", where=where)
    return heads * int(getattr(config, "head_dim", None) or config.hidden_size // heads)


def _spec(reader: SafetensorsReader, name: str) -> TensorSpec | None:
    return reader.spec(name) if name in reader.names() else None


def _agree(where: str, spec: TensorSpec, expected: tuple[int, ...]) -> None:
    if spec.shape != expected:
        raise SourceError(
            f"config.json makes the tensor {spec.name} {list(expected)}, its file {list(spec.shape)}",
            where=where,
            hint="Weights and config.json do not belong together: get all files of one revision.",
        )
