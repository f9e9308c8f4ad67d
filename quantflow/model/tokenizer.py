"""The tokenizer of a folder."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from quantflow.errors import QuantFlowError


def load_tokenizer(folder: Path, error: type[QuantFlowError]) -> Any:
    """Load a tokenizer without running code of its own.

    Raises:
        QuantFlowError: Of class `error`, if it cannot be loaded or has no token that ends a text.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as cause:  # each tokenizer class raises what it likes about its own files
        raise error(
            f"the tokenizer cannot be loaded: {cause}",
            where=str(folder),
            hint="The folder needs tokenizer.json and tokenizer_config.json beside the weights.",
        ) from cause
    if tokenizer.eos_token_id is None:
        raise error("the tokenizer has no token that ends a text (eos_token)", where=str(folder))
    return tokenizer
