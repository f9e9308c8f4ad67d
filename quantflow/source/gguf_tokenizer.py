"""Mending a tokenizer that was made from a GGUF file; the inspect stage finds out whether it is sound."""

from typing import Any

from quantflow.pipeline.events import Reporter
from quantflow.source.gguf_header import SPECIAL_TOKENS, GgufHeader

# Attributes of a transformers tokenizer.
_ATTRIBUTES = dict(zip(SPECIAL_TOKENS, ("bos_token", "eos_token", "unk_token", "pad_token"), strict=True))

PROBE = "The filter lasts about 2,200 hours."
"""Any text: what comes before it is what counts."""

# Pre-tokenization rules of GGUF files that GPT-2's, which transformers uses for `llama` files, stands for:
# SmolLM's own differs in splitting digits, which its merges never join.
_GPT2_LIKE = ("default", "gpt-2", "gpt2", "smollm")


_LLAMA3_LIKE = ("llama-bpe", "llama-v3", "llama3")
"""Split rules under which llama.cpp puts BOS before text where the file does not say whether to."""


def repair_tokenizer(tokenizer: Any, header: GgufHeader, reporter: Reporter) -> None:
    """Make a converted tokenizer agree with the file's metadata; every change and every doubt is an event.

    Args:
        tokenizer: A transformers tokenizer; changed in place.
        header: The file's header.
        reporter: Receives the events.
    """
    _repair_special_tokens(tokenizer, header, reporter)
    _repair_bos(tokenizer, header, reporter)
    if tokenizer.clean_up_tokenization_spaces:
        tokenizer.clean_up_tokenization_spaces = False
        reporter.event(
            "gguf-tokenizer-clean-up",
            "The converted tokenizer removed spaces before punctuation when decoding; this is switched off.",
        )
    _tell_other_rule(header, reporter)


def _repair_special_tokens(tokenizer: Any, header: GgufHeader, reporter: Reporter) -> None:
    for role, attribute in _ATTRIBUTES.items():
        token_id = header.token_id(role)
        current = getattr(tokenizer, f"{attribute}_id")
        if token_id is None or token_id == current:
            continue
        before, after = getattr(tokenizer, attribute), tokenizer.convert_ids_to_tokens(token_id)
        setattr(tokenizer, attribute, after)
        had = f"had {before} as" if before is not None else "had no"
        reporter.event(
            f"gguf-tokenizer-{role}",
            f"The converted tokenizer {had} {attribute.replace('_', ' ')}; it is {after} (id {token_id}), as "
            "the GGUF file says.",
            before=before,
            after=after,
        )
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
        reporter.event(
            "gguf-tokenizer-padding",
            f"The GGUF file names no padding token; the end-of-text token {tokenizer.eos_token} stands in.",
            before=None,
            after=tokenizer.eos_token,
        )


def _repair_bos(tokenizer: Any, header: GgufHeader, reporter: Reporter) -> None:
    """Put the beginning-of-text token before text exactly if the file says so; else as llama.cpp does it."""
    said = header.metadata.get("tokenizer.ggml.add_bos_token")
    wanted = _is_with_bos_by_default(header) if said is None else bool(said)
    if tokenizer.bos_token_id is None or wanted == _adds_bos(tokenizer):
        return
    tokenizer.add_bos_token = wanted
    reporter.event(
        "gguf-tokenizer-adds-bos",
        f"The converted tokenizer {'did not put' if wanted else 'put'} the beginning-of-text token before "
        f"every text; this now is as {'the GGUF file says' if said is not None else 'llama.cpp does it'}.",
        adds_bos=wanted,
    )


def _is_with_bos_by_default(header: GgufHeader) -> bool:
    sentencepiece = header.metadata.get("tokenizer.ggml.model") == "llama"
    return sentencepiece or header.metadata.get("tokenizer.ggml.pre") in _LLAMA3_LIKE


def _adds_bos(tokenizer: Any) -> bool:
    ids = tokenizer(PROBE).input_ids
    return bool(ids) and ids[0] == tokenizer.bos_token_id


def _tell_other_rule(header: GgufHeader, reporter: Reporter) -> None:
    rule = header.metadata.get("tokenizer.ggml.pre")
    byte_level = header.metadata.get("tokenizer.ggml.model") == "gpt2"
    if header.architecture == "llama" and byte_level and rule not in (None, *_GPT2_LIKE):
        reporter.event(
            "gguf-tokenizer-splits-otherwise",
            f"The GGUF file says that text is split by the rule {rule} before merging; the conversion splits "
            "by GPT-2's, so that tokens may differ from the model's own.",
            rule=str(rule),
        )
