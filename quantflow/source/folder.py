"""What can be said of a Hugging Face folder without loading it, and why one is refused."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from typing import Any

from quantflow.errors import RecipeError, SourceError
from quantflow.model.families import FAMILIES, family_of
from quantflow.model.weights import INDEX_FILE, SINGLE_FILE, SafetensorsReader
from quantflow.pipeline.digest import file_digest
from quantflow.pipeline.events import Reporter
from quantflow.source.consistency import check_config
from quantflow.source.identify import (
    CONFIG_NAME,
    PICKLE_INDEX,
    PICKLE_SINGLE,
    WEIGHT_PATTERNS,
    checkpoint_files,
)

OTHER_PICKLES = ("*.pt", "*.pth", "*.bin", "*.ckpt")
# Any one of these is enough for AutoTokenizer.
TOKENIZER_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
GET_CONFIG = "Get it again from where the weights are from."
CAUSAL_LM_SUFFIXES = ("ForCausalLM", "LMHeadModel")


@dataclass(frozen=True)
class FolderFacts:
    """What a sound checkpoint folder holds.

    Attributes:
        model_type: `model_type` of its config.
        dtype: Data type of most parameters, in torch's names.
        parameters: Number of stored floating-point parameters.
    """

    model_type: str
    dtype: str
    parameters: int


def inspect_folder(folder: Path, reporter: Reporter) -> FolderFacts:
    """Check that a folder is a lossless causal language model that QuantFlow can read.

    Headers and small files are read, no weights.

    Raises:
        RecipeError: It is quantized already, of an unsupported architecture, needs code of its own, or is no
            causal language model.
        SourceError: Files are missing, damaged, pickled or do not belong together.
    """
    config = read_config(folder)
    model_type = config["model_type"]
    _tell_of_own_code(config, folder, reporter)
    _require_tokenizer(folder)
    _require_one_set_of_weights(folder)
    reader = SafetensorsReader(folder)
    _require_usual_names(reader)
    counts = _count_parameters(reader)
    check_config(folder, reader)
    dtype = max(sorted(counts), key=counts.__getitem__)
    _tell_dtypes(counts, dtype, config, reporter)
    _tell_unindexed(reader, folder, reporter)
    return FolderFacts(model_type, dtype, counts.total())


def read_config(folder: Path) -> dict[str, Any]:
    """A folder's config.json, refused where its model cannot be a baseline; `model_type` is there.

    Raises:
        RecipeError: It is quantized already, of an unsupported architecture, needs code of its own, or is no
            causal language model.
        SourceError: It is missing or no JSON object.
    """
    config = _parse_config(folder)
    _refuse_quantized(config, folder)
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise SourceError("config.json has no model_type", where=str(folder / CONFIG_NAME), hint=GET_CONFIG)
    if "auto_map" in config and model_type not in FAMILIES:
        raise RecipeError(
            f"models of type {model_type!r} come with code of their own (auto_map), which is never run",
            where=str(folder / CONFIG_NAME),
            hint=f"Only architectures that QuantFlow knows can be used: {', '.join(sorted(FAMILIES))}.",
        )
    family_of(model_type)
    _refuse_other_heads(config, folder)
    return config


def hash_files(folder: Path, reporter: Reporter, known: Mapping[str, str]) -> dict[str, str]:
    """SHA-256 of each file that makes the model, by name, each read once, those known not at all."""
    paths = checkpoint_files(folder)
    hashes = {path.name: known[path.name] for path in paths if path.name in known}
    missing = [path for path in paths if path.name not in hashes]
    if missing:
        with reporter.track("Hashing the checkpoint", len(missing)) as advance:
            for path in missing:
                hashes[path.name] = file_digest(path)
                advance(1)
    return hashes


def has_safetensors(folder: Path) -> bool:
    """Whether a folder has weights in the form that is read."""
    return (folder / SINGLE_FILE).is_file() or (folder / INDEX_FILE).is_file()


def _parse_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_NAME
    if not path.is_file():
        gguf = next(iter(sorted(folder.glob("*.gguf"))), None)
        raise SourceError(
            "the model folder has no config.json",
            where=str(folder),
            hint=f"For a GGUF model name the file itself: {gguf}."
            if gguf
            else "Name the folder that a Hugging Face model was saved to.",
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"config.json cannot be read: {error}", where=str(path), hint=GET_CONFIG) from error
    if not isinstance(config, dict):
        raise SourceError("config.json is not a JSON object", where=str(path), hint=GET_CONFIG)
    return config


def _refuse_quantized(config: dict[str, Any], folder: Path) -> None:
    quantization = config.get("quantization_config")
    if quantization is None:
        return
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    raise RecipeError(
        f"the checkpoint is quantized already ({method or 'method unnamed'}): it is no lossless baseline",
        where=str(folder / CONFIG_NAME),
        hint="Name the FP16 or BF16 model that it was made from.",
    )


def _refuse_other_heads(config: dict[str, Any], folder: Path) -> None:
    named = config.get("architectures") or ()
    architectures = [str(name) for name in named] if isinstance(named, list | tuple) else [str(named)]
    if architectures and not any(name.endswith(CAUSAL_LM_SUFFIXES) for name in architectures):
        raise RecipeError(
            f"the model is no causal language model but {', '.join(architectures)}",
            where=str(folder / CONFIG_NAME),
            hint="QuantFlow takes decoder models with a language-model head, such as LlamaForCausalLM.",
        )


def _tell_of_own_code(config: dict[str, Any], folder: Path, reporter: Reporter) -> None:
    if "auto_map" in config:
        reporter.event(
            "own-code-ignored",
            f"config.json names code of the model's own (auto_map), which is not run: transformers' "
            f"{config['model_type']} takes its place. Compare a few answers if that code computes otherwise.",
            auto_map=json.loads(json.dumps(config["auto_map"])),
        )


def _require_tokenizer(folder: Path) -> None:
    if not any((folder / name).is_file() for name in TOKENIZER_VOCABULARIES):
        raise SourceError(
            "the model folder has no tokenizer",
            where=str(folder),
            hint="Put the model's tokenizer files, such as tokenizer.json, beside config.json.",
        )


def _require_one_set_of_weights(folder: Path) -> None:
    if (folder / SINGLE_FILE).is_file() and (folder / INDEX_FILE).is_file():
        raise SourceError(
            f"the model folder has {SINGLE_FILE} and {INDEX_FILE}: two sets of weights, of which programs "
            "take one or the other",
            where=str(folder),
            hint="Remove the one that is not the model.",
        )
    if has_safetensors(folder):
        return
    if shards := sorted(path.name for path in folder.glob("model-*.safetensors")):
        raise SourceError(
            f"the model folder has {len(shards)} shards, such as {shards[0]}, but no {INDEX_FILE} to tell "
            "whether that is all",
            where=str(folder),
            hint="Get that file from where the shards are from.",
        )
    if (folder / PICKLE_SINGLE).is_file() or (folder / PICKLE_INDEX).is_file():
        raise SourceError(
            f"the weights are pickled ({PICKLE_SINGLE}), which could run code when loaded: refused",
            where=str(folder),
            hint="Take a safetensors version of the model, or set model.allow_pickle: true, which reads them "
            "with torch's restricted loader.",
        )
    pickled = next((path.name for pattern in OTHER_PICKLES for path in sorted(folder.glob(pattern))), None)
    raise SourceError(
        f"the weights are pickled ({pickled}), which could run code when loaded: refused"
        if pickled
        else f"the model folder has neither {SINGLE_FILE} nor {INDEX_FILE}",
        where=str(folder),
        hint="Save the model as safetensors: `model.save_pretrained(folder)` of a current transformers.",
    )


def _require_usual_names(reader: SafetensorsReader) -> None:
    """Files under other names would be read without being part of the model's identity."""
    odd = sorted(
        name for name in reader.shards if not any(fnmatchcase(name, pattern) for pattern in WEIGHT_PATTERNS)
    )
    if odd:
        raise SourceError(
            f"{INDEX_FILE} names {odd[0]}, which is no usual name of a shard",
            where=str(reader.folder),
            hint="Rename shards to model-00001-of-00002.safetensors and so on, in the index, too.",
        )


def _count_parameters(reader: SafetensorsReader) -> Counter[str]:
    """Stored floating-point parameters by data type, from the headers of the safetensors files."""
    counts: Counter[str] = Counter()
    for name in reader.names():
        spec = reader.spec(name)
        if spec.dtype.is_floating_point:
            counts[str(spec.dtype).removeprefix("torch.")] += prod(spec.shape)
    if not counts:
        raise SourceError("the safetensors files hold no floating-point weights", where=str(reader.folder))
    return counts


def _tell_dtypes(counts: Counter[str], dtype: str, config: dict[str, Any], reporter: Reporter) -> None:
    if len(counts) > 1:
        reporter.event(
            "mixed-dtypes",
            f"The weights are stored in {len(counts)} data types; {dtype}, that of most, counts as theirs.",
            parameters=dict(sorted(counts.items())),
        )
    said = config.get("dtype", config.get("torch_dtype"))
    if isinstance(said, str) and said != dtype:
        reporter.event(
            "dtype-differs-from-config",
            f"config.json says {said}, the weights are {dtype}: a runtime that goes by config.json rounds "
            "them, the baseline here does not.",
            config=said,
            weights=dtype,
        )


def _tell_unindexed(reader: SafetensorsReader, folder: Path, reporter: Reporter) -> None:
    if left_out := sorted(reader.unindexed):
        reporter.event(
            "tensors-not-in-index",
            f"{len(left_out)} tensors lie in shards without being named in {INDEX_FILE}, and are not read.",
            tensors=list(left_out[:20]),
        )
    shards = {path.name for path in folder.glob("model-*.safetensors")}
    if stray := sorted(shards - reader.shards):
        reporter.event(
            "shards-not-in-index",
            f"{len(stray)} shards are named nowhere in {INDEX_FILE}, and are not read.",
            shards=list(stray[:20]),
        )
