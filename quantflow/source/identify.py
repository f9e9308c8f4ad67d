"""Which content a model source stands for, found out without loading it."""

from collections.abc import Callable
from pathlib import Path

from quantflow.errors import RecipeError
from quantflow.source.checkpoint import identity_of
from quantflow.source.params import SourceParams
from quantflow.source.uri import SourceRef

CONFIG_NAME = "config.json"
WEIGHT_PATTERNS = ("model.safetensors", "model-*.safetensors", "model.safetensors.index.json")
PICKLE_SINGLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
PICKLE_PATTERNS = (PICKLE_SINGLE, "pytorch_model-*.bin", PICKLE_INDEX)
"""Weights that are read only where the recipe allows it and there are no others."""
TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
CHECKPOINT_PATTERNS = (CONFIG_NAME, "generation_config.json", *WEIGHT_PATTERNS, *TOKENIZER_FILES)
"""Names of a checkpoint's files that are read; anything else beside them is left alone."""


def checkpoint_files(folder: Path) -> list[Path]:
    """Files of a Hugging Face folder that make the model (config, safetensors, tokenizer), sorted."""
    found = {path for pattern in CHECKPOINT_PATTERNS for path in folder.glob(pattern) if path.is_file()}
    return sorted(found)


def pickle_files(folder: Path) -> list[Path]:
    """Pickled weights of a folder that has no others, sorted."""
    if any(path for pattern in WEIGHT_PATTERNS for path in folder.glob(pattern)):
        return []
    return sorted(path for pattern in PICKLE_PATTERNS for path in folder.glob(pattern) if path.is_file())


def external_files(ref: SourceRef, *, allow_pickle: bool = False) -> list[Path]:
    """Local files whose content is the source; empty for a hub id or a wheel, which name their content."""
    if ref.path is None:
        return []
    if ref.kind == "gguf":
        return [ref.path]
    return checkpoint_files(ref.path) + (pickle_files(ref.path) if allow_pickle else [])


def resolve_revision(ref: SourceRef, revision: str | None) -> str | None:
    """Commit that a recipe's revision stands for; asks the hub unless it is a commit already.

    Returns:
        40 hex digits for a hub id, None for the other kinds.

    Raises:
        RecipeError: The source has no revisions, or the hub does not know the id or revision.
        SourceError: The hub cannot be reached and the revision is not in the local cache.
    """
    if ref.kind != "hub":
        if revision is not None:
            raise RecipeError(
                "model.revision is for models of the hub only",
                where=ref.uri,
                hint="Leave it out: a local file or a wheel is known by its content.",
            )
        return None
    from quantflow.source.hub import resolve_commit

    return resolve_commit(ref.uri, revision)


def source_params(
    ref: SourceRef, revision: str | None, hash_file: Callable[[Path], str], *, allow_pickle: bool = False
) -> SourceParams:
    """Parameters of the source stage for a source.

    Args:
        ref: The parsed source.
        revision: As the recipe says; resolved to a commit here, see `resolve_revision`.
        hash_file: SHA-256 of a file's content; the caller may answer from a cache.
        allow_pickle: Whether pickled weights may be read where there are no others.
    """
    commit = resolve_revision(ref, revision)
    if ref.wheel is not None:
        return SourceParams(uri=ref.uri, identity=identity_of({ref.wheel.member: ref.wheel.sha256}))
    if commit is not None:
        return SourceParams(uri=ref.uri, revision=commit, identity=commit, allow_pickle=allow_pickle)
    hashes = {path.name: hash_file(path) for path in external_files(ref, allow_pickle=allow_pickle)}
    return SourceParams(
        uri=ref.uri,
        identity=identity_of(hashes),
        files=hashes if ref.kind == "folder" else {},
        allow_pickle=allow_pickle,
    )
