"""Whether a GGUF file's metadata and its tensors describe one model.

The metadata decides how large a model the conversion builds, so that it is held against the tensors first.
"""

import re
from pathlib import Path

from quantflow.errors import SourceError
from quantflow.source.gguf_header import SPECIAL_TOKENS, GgufHeader

EMBEDDING = "token_embd.weight"
_BLOCK = re.compile(r"blk\.(\d+)\.")


def check_header(header: GgufHeader, path: Path) -> None:
    """Hold the sizes in the metadata against the tensors' shapes.

    Raises:
        SourceError: They contradict each other.
    """
    blocks = len({match[1] for name in header.tensors if (match := _BLOCK.match(name))})
    for what, found in (
        ("block_count", blocks),
        ("embedding_length", _shape(header, EMBEDDING, 0)),
        ("feed_forward_length", _shape(header, "blk.0.ffn_up.weight", 1)),
    ):
        said = header.metadata.get(f"{header.architecture}.{what}")
        if said is not None and found is not None and said != found:
            raise _contradiction(path, what, said, found)
    tokens, rows = header.metadata.get("tokenizer.ggml.tokens"), _shape(header, EMBEDDING, 1)
    if tokens is not None and rows is not None and tokens != rows:
        raise _contradiction(path, "number of tokens", tokens, rows)
    for role in SPECIAL_TOKENS:
        token = header.token_id(role)
        if token is not None and isinstance(tokens, int) and token >= tokens:
            raise _contradiction(path, f"{role}_token_id", token, f"{tokens} tokens")
    _check_heads(header, path)


def _check_heads(header: GgufHeader, path: Path) -> None:
    """The queries' width bounds every size that belongs to attention heads."""
    heads, width = header.metadata.get(f"{header.architecture}.attention.head_count"), _query_width(header)
    if heads is None or width is None:
        return
    if type(heads) is not int or heads < 1 or width % heads:
        raise _contradiction(path, "attention.head_count", heads, f"queries of width {width}")
    for what in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        said = header.metadata.get(f"{header.architecture}.{what}")
        if said is not None and (type(said) is not int or not 0 < said <= width // heads):
            raise _contradiction(path, what, said, f"heads of width {width // heads}")


def _query_width(header: GgufHeader) -> int | None:
    return _shape(header, "blk.0.attn_q.weight", 1)


def _shape(header: GgufHeader, name: str, axis: int) -> int | None:
    tensor = header.tensors.get(name)
    return tensor.shape[axis] if tensor is not None and axis < len(tensor.shape) else None


def _contradiction(path: Path, what: str, said: object, found: object) -> SourceError:
    return SourceError(
        f"the GGUF file is damaged: its metadata says {said} for {what}, its tensors hold {found}",
        where=str(path),
        hint="Fetch or convert it again.",
    )
