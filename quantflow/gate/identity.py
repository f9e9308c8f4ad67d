"""The criterion of identity: tokenizer, template and settings around the weights are the baseline's."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from quantflow.errors import ArtifactError
from quantflow.formats.onnx.params import GENAI_CONFIG
from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.pipeline.digest import file_digest

NAME, METRIC = "identity", "differences"
# What generation goes by, with what transformers takes where nothing is said.
GENERATION_DEFAULTS: Mapping[str, Any] = {
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "do_sample": False,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_p": None,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "num_beams": 1,
    "length_penalty": 1.0,
    "guidance_scale": None,
    "min_length": 0,
    "min_new_tokens": None,
    "max_new_tokens": None,
    "stop_strings": None,
    "bad_words_ids": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "sequence_bias": None,
}
# Those that config.json says where generation_config.json does not.
TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "sliding_window")
LONGEST_INPUT = "model_max_length"
TOKENIZER_KEYS = (
    "add_bos_token",
    "add_eos_token",
    "bos_token",
    "eos_token",
    "unk_token",
    "pad_token",
    "clean_up_tokenization_spaces",
    LONGEST_INPUT,
)
OTHER_TOKENIZERS = (
    *("tokenizer.model", "sentencepiece.bpe.model", "spiece.model"),
    *("vocab.json", "merges.txt", "vocab.txt"),
)
# State that a tokenizer was saved in, not what it does to a text.
TOKENIZER_STATE = ("truncation", "padding")
_LONGEST = 60


def differences(baseline: Path, artifact: Path) -> dict[str, str]:
    """What of an artifact is not the baseline's: aspect → how it differs, a phrase.

    Files are compared by what they say, not by how it is written.

    Args:
        baseline: Folder of the lossless model.
        artifact: Folder of the artifact.

    Raises:
        ArtifactError: A file of either is no JSON.
    """
    aspects: Mapping[str, Callable[[Path], Mapping[str, Any]]] = {
        "tokenizer": _tokenizer,
        "chat template": lambda folder: {"chat template": _chat_template(folder)},
        "generation config": _generation,
        "vocabulary": lambda folder: {"vocab_size": _text_config(folder).get("vocab_size")},
        "context length": _context,
    }
    found = {}
    bare = _bare_graph(artifact)
    for aspect, read in aspects.items():
        before, after = read(baseline), read(artifact)
        if bare is not None and aspect in bare:
            after = bare[aspect]
            before = {key: before.get(key) for key in after}
        elif bare is not None:  # of its tokenizer the builder says the context's length, which is compared
            before, after = (
                {k: v for k, v in side.items() if k != LONGEST_INPUT} for side in (before, after)
            )
        other = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        if other:
            found[aspect] = ", ".join(f"{key} {_told(before.get(key), after.get(key))}" for key in other)
    return found


def _bare_graph(folder: Path) -> Mapping[str, Mapping[str, Any]] | None:
    """What settings of ONNX Runtime GenAI say beside a graph that has no config.json; None for others.

    They say less than a config: what they leave out (rotary bases, windows) is in the graph, as KL sees.
    A BOS or padding that the model does not have is made up by the builder.
    """
    model = {} if (folder / "config.json").is_file() else _read(folder / GENAI_CONFIG).get("model")
    if not isinstance(model, dict) or not model:
        return None
    search = _read(folder / GENAI_CONFIG).get("search")
    said = search if isinstance(search, dict) else {}
    ends = model.get("eos_token_id")
    return {
        "generation config": {
            "eos_token_id": sorted(ends) if isinstance(ends, list) else [ends],
            **{key: said[key] for key in GENERATION_DEFAULTS if key in said},
        },
        "vocabulary": {"vocab_size": model.get("vocab_size")},
        "context length": {"max_position_embeddings": model.get("context_length")},
    }


def identity_criterion(artifact: str, found: Mapping[str, str], *, required: bool) -> CriterionResult:
    """Judge what `differences` found.

    Args:
        artifact: Name of the artifact.
        found: What differs.
        required: Whether the artifact's verdict depends on it.
    """
    same = "Tokenizer, chat template, generation config, vocabulary and context length are the baseline's."
    told = "; ".join(f"{aspect}: {how}" for aspect, how in found.items())
    return CriterionResult(
        artifact=artifact,
        name=NAME,
        metric=METRIC,
        value=float(len(found)),
        delta=float(len(found)),
        margin=0.0,
        n=5,
        verdict=Verdict.FAIL if found else Verdict.PASS,
        required=required,
        reason=f"Not the baseline's are: {told}." if found else same,
    )


def _tokenizer(folder: Path) -> Mapping[str, Any]:
    whole = {k: v for k, v in _read(folder / "tokenizer.json").items() if k not in TOKENIZER_STATE}
    model = whole.pop("model", None)
    vocabulary: object = {}
    rest: dict[str, Any] = {}
    if isinstance(model, dict):
        vocabulary = model.pop("vocab", {})
        rest = {**model, "merges": [_merge(m) for m in model.get("merges", ())]}
    settings = _read(folder / "tokenizer_config.json")
    # Older tokenizers have no tokenizer.json: then it is their own files that have to be the same.
    own = [] if whole or rest or vocabulary else [f for f in OTHER_TOKENIZERS if (folder / f).is_file()]
    return {
        **{name: file_digest(folder / name) for name in own},
        "vocabulary": vocabulary,
        "model": rest,
        **whole,
        **{key: _token(settings[key]) for key in TOKENIZER_KEYS if key in settings},
    }


def _merge(merge: object) -> str:
    return merge if isinstance(merge, str) else " ".join(merge) if isinstance(merge, list) else str(merge)


def _token(value: Any) -> Any:
    return value.get("content") if isinstance(value, dict) else value


def _chat_template(folder: Path) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8").strip()
    own = _read(folder / "tokenizer_config.json").get("chat_template")
    return own.strip() if isinstance(own, str) else None if own is None else json.dumps(own, sort_keys=True)


def _generation(folder: Path) -> Mapping[str, Any]:
    said, config = _read(folder / "generation_config.json"), _text_config(folder)
    fallback = {key: config.get(key) for key in TOKEN_IDS}
    found = {
        key: said[key] if said.get(key) is not None else fallback.get(key, default)
        for key, default in GENERATION_DEFAULTS.items()
    }
    ends = found["eos_token_id"]
    return {**found, "eos_token_id": sorted(ends) if isinstance(ends, list) else [ends]}


def _context(folder: Path) -> Mapping[str, Any]:
    config = _text_config(folder)
    # transformers 5 writes rope_parameters where older ones write rope_theta and rope_scaling.
    rope = config.get("rope_parameters") or {
        "rope_theta": config.get("rope_theta"),
        **(config.get("rope_scaling") or {}),
    }
    stated = {
        ("rope_type" if key == "type" else key): value for key, value in rope.items() if value is not None
    }
    return {**{key: config.get(key) for key in CONTEXT_KEYS}, "rope": {"rope_type": "default", **stated}}


def _text_config(folder: Path) -> dict[str, Any]:
    config = _read(folder / "config.json")
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _read(path: Path) -> dict[str, Any]:
    """An object of JSON; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as cause:
        raise ArtifactError(f"{path.name} is no JSON", where=str(path)) from cause
    if not isinstance(content, dict):
        raise ArtifactError(f"{path.name} is not a JSON object", where=str(path))
    return content


def _told(before: Any, after: Any) -> str:
    short = [json.dumps(value, ensure_ascii=False) for value in (before, after)]
    if any(len(text) > _LONGEST for text in short):
        return "is another one"
    return f"is {short[1]} instead of {short[0]}"
