"""What the stages that measure the baseline and an artifact need to know."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

from quantflow.pipeline.stage import StageParams
from quantflow.runtime.params import ServingParams

MeasuredSplit = Literal["selection", "evaluation"]
"""Documents that models are measured on: those that choices are made by, and the gate's."""


class BaselineParams(StageParams):
    """Resolved parameters of the baseline stage.

    Attributes:
        device: Where to compute: `cpu` or `cuda`.
        batch_tokens: About how many tokens, padding included, go through a block at once.
        split: The documents it is measured on.
        min_documents: Fewest documents, near duplicates counted once, that are of use.
        look_seed: Of the order of documents where artifacts are measured look by look, so that no batch has
            windows of two looks; None where they are measured in one go.
    """

    device: str
    batch_tokens: PositiveInt
    split: MeasuredSplit = "evaluation"
    min_documents: PositiveInt = 1
    look_seed: int | None = None


class MeasureParams(StageParams):
    """Resolved parameters of an artifact's measure stage; batches are the baseline's.

    Attributes:
        device: Where to compute: `cpu` or `cuda`.
        batch_tokens: As in the baseline's parameters: other batches would be another measurement.
    """

    device: str
    batch_tokens: PositiveInt


class NoiseParams(StageParams):
    """Resolved parameters of the noise stage.

    Attributes:
        device: Where to compute: `cpu` or `cuda`.
        batch_tokens: As in the baseline's parameters, which it is told from.
        windows: Evaluation windows that are run again, at most.
    """

    device: str
    batch_tokens: PositiveInt
    windows: PositiveInt


class YardstickParams(StageParams):
    """Resolved parameters of the yardstick stage; batches are the baseline's.

    Attributes:
        bits: Width of a code.
        group_size: Input channels that share a scale; −1 for all of a layer's.
        symmetric: Whether zero is in the middle of the grid.
        keep: Names or patterns of units that stay as they are.
        device: Where to compute: `cpu` or `cuda`.
        batch_tokens: As in the baseline's parameters.
    """

    bits: int
    group_size: int
    symmetric: bool
    keep: tuple[str, ...]
    device: str
    batch_tokens: PositiveInt


class PromptParams(StageParams):
    """What all sides go on with, in whatever runtime.

    Attributes:
        prompts: How many prompts.
        prompt_tokens: Tokens of each at most.
        output_tokens: Tokens to generate at most.
        seed: Prompts are drawn by it.
    """

    prompts: PositiveInt
    prompt_tokens: PositiveInt
    output_tokens: PositiveInt
    seed: int


class GenerationParams(PromptParams):
    """Resolved parameters of the stages that let models generate in torch, baseline's and artifacts' alike.

    Attributes:
        device: Where to compute: `cpu` or `cuda`.
        batch_tokens: Most tokens of a batch of prompts, padding included.
    """

    device: str
    batch_tokens: PositiveInt


class CustomScore(BaseModel):
    """A scorer of the user's own.

    Attributes:
        name: The criterion's name.
        function: Name of the function in the first of `files`; None where it is a command.
        command: Program and arguments; None where it is a function.
        files: Files of the recipe's folder that it is or names → where they are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    function: str | None
    command: tuple[str, ...] | None
    files: Mapping[str, str]


class CustomParams(StageParams):
    """Resolved parameters of the stage that asks scorers of the user's own.

    Attributes:
        scorers: What to ask.
    """

    scorers: tuple[CustomScore, ...]


class ServedParams(StageParams):
    """Resolved parameters of measuring in vLLM, of the baseline and of an artifact alike.

    Attributes:
        serving: vLLM's pinned options.
        batch_tokens: Most tokens that go through the model at once.
    """

    serving: ServingParams
    batch_tokens: PositiveInt


class SpeedParams(StageParams):
    """Resolved parameters of the speed stage.

    Attributes:
        serving: vLLM's pinned options.
        batch_tokens: Most tokens that go through the model at once.
        concurrency: Numbers of requests at a time.
        prompt_tokens: Tokens of every prompt.
        output_tokens: Tokens to generate for every request.
        rounds: How often baseline and artifact are timed.
    """

    serving: ServingParams
    batch_tokens: PositiveInt
    concurrency: tuple[PositiveInt, ...]
    prompt_tokens: PositiveInt
    output_tokens: PositiveInt
    rounds: PositiveInt
