"""What can be said of a Hugging Face folder without loading it, and why one is refused."""

import json
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from quantflow.errors import RecipeError, SourceError
from quantflow.model.families import family_of
from quantflow.model.weights import INDEX_FILE, SINGLE_FILE, SafetensorsReader
from quantflow.pipeline.digest import file_digest
from quantflow.pipeline.events import Reporter
from quantflow.source.identify import CONFIG_NAME, checkpoint_files

PICKLED_PATTERNS = ("pytorch_model*.bin", "*.pt", "*.pth", "consolidated*.pth")
# Any one of these is enough for AutoTokenizer.
TOKENIZER_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
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


def inspect_folder(folder: Path) -> FolderFacts:
    """Check that a folder is a lossless causal language model that QuantFlow can read.

    Raises:
        RecipeError: It is quantized already, of an unsupported architecture, or no causal language model.
        SourceError: Files are missing, damaged or pickled.
    """
    config = _read_config(folder)
    _refuse_quantized(config, folder)
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise SourceError("config.json has no model_type", where=str(folder / CONFIG_NAME))
    family_of(model_type)
    _refuse_other_heads(config, folder)
    _require_tokenizer(folder)
    counts = _count_parameters(folder)
    return FolderFacts(model_type, max(sorted(counts), key=counts.__getitem__), counts.total())


def hash_files(folder: Path, reporter: Reporter) -> dict[str, str]:
    """SHA-256 of each file that makes the model, by name, each read once."""
    paths = checkpoint_files(folder)
    hashes = {}
    with reporter.track("Hashing the checkpoint", len(paths)) as advance:
        for path in paths:
            hashes[path.name] = file_digest(path)
            advance(1)
    return hashes


def _read_config(folder: Path) -> dict[str, Any]:
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
    except (OSError, ValueError) as error:
        raise SourceError(f"config.json cannot be read: {error}", where=str(path)) from error
    if not isinstance(config, dict):
        raise SourceError("config.json is not a JSON object", where=str(path))
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
    architectures = [str(name) for name in config.get("architectures") or ()]
    if architectures and not any(name.endswith(CAUSAL_LM_SUFFIXES) for name in architectures):
        raise RecipeError(
            f"the model is no causal language model but {', '.join(architectures)}",
            where=str(folder / CONFIG_NAME),
            hint="QuantFlow takes decoder models with a language-model head, such as LlamaForCausalLM.",
        )


def _require_tokenizer(folder: Path) -> None:
    if not any((folder / name).is_file() for name in TOKENIZER_VOCABULARIES):
        raise SourceError(
            "the model folder has no tokenizer",
            where=str(folder),
            hint="Put the model's tokenizer files, such as tokenizer.json, beside config.json.",
        )


def _count_parameters(folder: Path) -> Counter[str]:
    """Stored floating-point parameters by data type, from the headers of the safetensors files."""
    if not (folder / SINGLE_FILE).is_file() and not (folder / INDEX_FILE).is_file():
        pickled = next((path.name for pattern in PICKLED_PATTERNS for path in folder.glob(pattern)), None)
        raise SourceError(
            f"the weights are pickled ({pickled}), which could run code when loaded: refused"
            if pickled
            else f"the model folder has neither {SINGLE_FILE} nor {INDEX_FILE}",
            where=str(folder),
            hint="Save the model as safetensors: `model.save_pretrained(folder)` of a current transformers.",
        )
    reader = SafetensorsReader(folder)
    counts: Counter[str] = Counter()
    for name in reader.names():
        spec = reader.spec(name)
        if spec.dtype.is_floating_point:
            counts[str(spec.dtype).removeprefix("torch.")] += prod(spec.shape)
    if not counts:
        raise SourceError("the safetensors files hold no floating-point weights", where=str(folder))
    return counts
