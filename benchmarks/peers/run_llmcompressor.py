"""Quantizes the benchmark's model with llm-compressor; runs in an environment of that tool's own.

    python run_llmcompressor.py MODEL CALIBRATION DTYPE OUTPUT {awq,gptq,gptq_asymmetric}

Everything that is not the same for all tools (groups, bits, symmetry, tokens) is llm-compressor's default.
"""

import json
import sys
from pathlib import Path

import torch
from clock import measured
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from llmcompressor.modifiers.transform.awq import AWQModifier
from llmcompressor.pipelines.cache import IntermediatesCache
from transformers import AutoModelForCausalLM, AutoTokenizer

GROUP_SIZE = 64


def main() -> None:
    """Quantize and save."""
    folder, calibration, dtype, output, method = sys.argv[1:]
    if not torch.accelerator.is_available():
        # It pins memory for copies to an accelerator, which torch refuses to do where there is none.
        IntermediatesCache.pin_memory = lambda *arguments, **named: None
    with measured():
        ids = json.loads(Path(calibration).read_text())
        tokens = Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]})
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        oneshot(
            model=model,
            tokenizer=tokenizer,
            dataset=tokens,
            recipe=_recipe(method),
            num_calibration_samples=len(ids),
            max_seq_length=len(ids[0]),
        )
        model.save_pretrained(Path(output) / method, save_compressed=True)
        tokenizer.save_pretrained(Path(output) / method)


def _recipe(method: str) -> list[object]:
    weights = QuantizationArgs(
        num_bits=4, type="int", strategy="group", group_size=GROUP_SIZE, symmetric=method == "gptq"
    )
    scheme = {"group_0": QuantizationScheme(targets=["Linear"], weights=weights)}
    if method == "awq":
        return [AWQModifier(), QuantizationModifier(config_groups=scheme, ignore=["lm_head"])]
    return [GPTQModifier(config_groups=scheme, ignore=["lm_head"])]


if __name__ == "__main__":
    main()
