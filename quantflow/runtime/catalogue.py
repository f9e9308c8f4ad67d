"""The runtimes there are, and what each of them gives to a measurement."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

RuntimeName = Literal["torch", "vllm"]


class Gives(StrEnum):
    """What a runtime can say of a model."""

    LOGITS = "logits"
    TARGET_LOGPROBS = "target_logprobs"
    TOPK_LOGPROBS = "topk_logprobs"
    TEXT = "text"
    SPEED = "speed"
    MEMORY = "memory"


@dataclass(frozen=True)
class Runtime:
    """A runtime as the stage graph and the gate see it.

    Attributes:
        name: As in the recipe.
        gives: What it can say of a model; a criterion that needs anything else is not guessed.
        baseline: `module:function` of the stage that measures the lossless model in it.
        measure: `module:function` of the stage that measures an artifact in it.
    """

    name: RuntimeName
    gives: frozenset[Gives]
    baseline: str
    measure: str


# torch runs the numbers that an artifact stores, dequantized to float32: what it takes in time and memory is
# not what serving the artifact takes.
TORCH = Runtime(
    "torch",
    frozenset({Gives.LOGITS, Gives.TARGET_LOGPROBS, Gives.TOPK_LOGPROBS}),
    "quantflow.measure.baseline:run",
    "quantflow.measure.artifact:run",
)
# vLLM hands out log-probabilities of the tokens that came and of the most likely ones, not of the vocabulary.
VLLM = Runtime(
    "vllm",
    frozenset({Gives.TARGET_LOGPROBS, Gives.TOPK_LOGPROBS, Gives.TEXT, Gives.SPEED, Gives.MEMORY}),
    "quantflow.measure.served:baseline",
    "quantflow.measure.served:artifact",
)
RUNTIMES: Mapping[RuntimeName, Runtime] = {runtime.name: runtime for runtime in (TORCH, VLLM)}
