"""From a GGUF file to a plain safetensors checkpoint, by transformers' own conversion."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partialmethod
from importlib import import_module
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from pydantic import JsonValue
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from quantflow.errors import SourceError
from quantflow.model.families import family_of
from quantflow.pipeline.events import Reporter
from quantflow.source.gguf_consistency import check_header
from quantflow.source.gguf_header import PLAIN_TYPES, GgufHeader, read_header
from quantflow.source.gguf_tokenizer import repair_tokenizer

MAX_SHARD_SIZE = "4GB"
_FACTORS = ("logit_scale", "embedding_scale", "residual_scale")
_LIMITS = ("attention.scale", "attention.clamp_kqv", "attn_logit_softcapping", "final_logit_softcapping")
"""Metadata of an architecture that change what it computes, and that the conversion does not read for the
supported ones; a factor of 1, or a value of 0, means nothing."""
# What a model loaded from GGUF remembers of it in its config; a plain checkpoint must not.
_CONFIG_LEFTOVERS = ("quantization_config", "_model_name_or_path", "_name_or_path")
# How a tokenizer was loaded, which would be saved with it.
_TOKENIZER_LEFTOVERS = ("is_local", "local_files_only")


def convert_gguf(path: Path, folder: Path, reporter: Reporter) -> None:
    """Write a GGUF model as a checkpoint that plain `from_pretrained` loads.

    F16, BF16 and F32 files keep their type. Quantized tensors are dequantized and stored as float16, which is
    told by an event, because the baseline is then this copy and not the model that it was made from.

    Args:
        path: The GGUF file.
        folder: Folder to make.
        reporter: Receives progress and events.

    Raises:
        RecipeError: QuantFlow does not know the architecture.
        SourceError: The file is damaged, is a part only, cannot be converted, or its values do not fit.
    """
    header = read_header(path)
    check_header(header, path)
    _refuse_what_would_be_lost(header, path)
    dtype = _checkpoint_dtype(header)
    with (
        reporter.track("Converting the GGUF file", 4) as advance,
        _alone(path) as lone,
        _parsed_once(),
        _without_bars(),
    ):
        config = _converted(lone, AutoConfig)
        family_of(config.model_type)
        advance(1)
        model = _load_model(lone, config, dtype)
        _require_all_read(model, header, path)
        _require_finite(model, dtype, path)
        advance(1)
        tokenizer = _converted(lone, PreTrainedTokenizerFast)
        repair_tokenizer(tokenizer, header, reporter)
        advance(1)
        _save_plain(model, folder)
        for name in _TOKENIZER_LEFTOVERS:
            tokenizer.init_kwargs.pop(name, None)
        tokenizer.save_pretrained(folder)
        advance(1)
    _tell_what_changed(header, path, dtype, reporter)


def _refuse_what_would_be_lost(header: GgufHeader, path: Path) -> None:
    """Refuse what the conversion would leave out without a word."""
    if (header.size("split.count") or 1) > 1:
        raise SourceError(
            "this is one part of a GGUF model that was split into several files",
            where=str(path),
            hint="Join them first: `llama-gguf-split --merge FIRST-PART JOINED`.",
        )
    scaling = {
        key: value
        for key, value in header.metadata.items()
        if ".rope.scal" in key and value not in ("none", 0.0, 1.0)
    }
    if scaling or any(name.startswith("rope_") for name in header.tensors):
        raise SourceError(
            "the model scales its rotary embedding, which transformers' GGUF conversion does not carry over",
            where=str(path),
            hint="Use the model's safetensors checkpoint.",
        )
    neutral = dict.fromkeys(_FACTORS, (0, 1)) | dict.fromkeys(_LIMITS, (0,))
    for name, values in neutral.items():
        value = header.metadata.get(f"{header.architecture}.{name}")
        if value is not None and value not in values:
            raise SourceError(
                f"the model computes with {name} {value}, which transformers' GGUF conversion leaves out",
                where=str(path),
                hint="Use the model's safetensors checkpoint.",
            )


def _checkpoint_dtype(header: GgufHeader) -> torch.dtype:
    if header.is_quantized:
        return torch.float16
    halves = {tensor.type for tensor in header.tensors.values()} - {"F32"}
    # Norms are F32 beside F16 or BF16 weights; F16 beside BF16 fits into neither.
    name = PLAIN_TYPES[halves.pop()] if len(halves) == 1 else "float32"
    dtype: torch.dtype = getattr(torch, name)
    return dtype


@contextmanager
def _alone(path: Path) -> Iterator[Path]:
    """The file under a folder of its own, since transformers prefers a tokenizer that lies beside it."""
    with tempfile.TemporaryDirectory(prefix="quantflow-gguf-") as folder:
        lone = Path(folder) / "model.gguf"
        lone.symlink_to(path.absolute())
        yield lone


def _converted(lone: Path, auto_class: Any, **options: Any) -> Any:
    try:
        return auto_class.from_pretrained(str(lone.parent), gguf_file=lone.name, **options)
    except Exception as error:  # the library raises whatever its parser trips over
        raise SourceError(
            f"transformers cannot convert this GGUF file: {error}",
            where=str(lone.readlink()),
            hint="Use a safetensors checkpoint of the model.",
        ) from error


@contextmanager
def _parsed_once() -> Iterator[None]:
    """Let config, weights and tokenizer share one parse of the file.

    transformers parses it for each of them and rebuilds gguf's table of tensor names for every module of the
    model; both are pure functions, and repeating them is two thirds of the time a small model takes.
    """
    with (
        _replaced(gguf, "GGUFReader", cache(gguf.GGUFReader)),
        _replaced(gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map)),
    ):
        yield


@contextmanager
def _without_bars() -> Iterator[None]:
    """Keep transformers from drawing progress bars of its own into ours."""
    bar = import_module("tqdm.auto").tqdm
    with _replaced(bar, "__init__", partialmethod(bar.__init__, disable=True)):
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _load_model(lone: Path, config: Any, dtype: torch.dtype) -> Any:
    model, loading = _converted(
        lone, AutoModelForCausalLM, config=config, dtype=dtype, output_loading_info=True
    )
    wrong = {kind: sorted(names) for kind, names in loading.items() if names and kind.endswith("_keys")}
    if wrong:
        kind, names = next(iter(wrong.items()))
        raise SourceError(
            f"the GGUF file and its architecture do not fit together: {len(names)} {kind.replace('_', ' ')}, "
            f"such as {names[0]}",
            where=str(lone.readlink()),
            hint="Use a safetensors checkpoint of the model.",
        )
    return model


def _require_all_read(model: Any, header: GgufHeader, path: Path) -> None:
    """Refuse tensors that the model has no place for: the conversion passes them by without a word."""
    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == model.config.model_type)
    names = gguf.get_tensor_name_map(architecture, model.config.num_hidden_layers)
    read = {names.get_name(key, try_suffixes=(".weight", ".bias")) for key in model.state_dict()}
    lost = sorted(header.tensors.keys() - read)
    if lost:
        raise SourceError(
            f"{len(lost)} tensors of the file are lost in transformers' GGUF conversion, such as {lost[0]}",
            where=str(path),
            hint="Use the model's safetensors checkpoint.",
        )


def _require_finite(model: Any, dtype: torch.dtype, path: Path) -> None:
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise SourceError(
                f"it holds values that are no numbers or beyond {torch.finfo(dtype).max:,.0f}, "
                f"the largest of {str(dtype).removeprefix('torch.')}",
                where=f"{path}: {name}",
                hint="Use a BF16 or F32 GGUF file or a safetensors checkpoint of the model.",
            )


def _save_plain(model: Any, folder: Path) -> None:
    """Move the weights into a model that never was GGUF, which transformers then saves."""
    config = model.config
    for name in _CONFIG_LEFTOVERS:
        if hasattr(config, name):
            delattr(config, name)
    with torch.device("meta"):
        plain = type(model)(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.save_pretrained(folder, max_shard_size=MAX_SHARD_SIZE)


def _tell_what_changed(header: GgufHeader, path: Path, dtype: torch.dtype, reporter: Reporter) -> None:
    stored = str(dtype).removeprefix("torch.")
    types = Counter(tensor.type for tensor in header.tensors.values())
    if header.is_quantized:
        reporter.event(
            "gguf-dequantized",
            "The GGUF file holds quantized weights: the baseline is this dequantized copy, stored as "
            f"{stored}, and not the model that it was made from.",
            types=dict(sorted(types.items())),
        )
    rounded = _inexact_f32_tensors(header, path, dtype)
    if rounded:
        reporter.event(
            "gguf-rounded",
            f"{len(rounded)} tensors that are float32 in the GGUF file were rounded to {stored}, the type of "
            "the other weights.",
            tensors=rounded,
        )


def _inexact_f32_tensors(header: GgufHeader, path: Path, dtype: torch.dtype) -> list[JsonValue]:
    """Names of float32 tensors with values that the checkpoint's data type does not have."""
    if dtype == torch.float32:
        return []
    inexact: list[JsonValue] = []
    for name, tensor in sorted(header.tensors.items()):
        if tensor.type == "F32":
            array = np.fromfile(path, "<f4", count=tensor.parameters, offset=tensor.begin)
            values = torch.from_numpy(array)
            if not torch.equal(values, values.to(dtype).float()):
                inexact.append(name)
    return inexact
