"""The sections of a recipe about what an artifact does: tasks, generated text, scorers of one's own."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from quantflow.recipe.section import Name, Section

Drop = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
REQUIRED = "Whether the artifact's verdict depends on it; if not, it is shown. Default: true."
MOST_TOKENS = 65_536


class Task(Section):
    """A task of lm-eval and what its score may lose."""

    name: Text = Field(
        description="Name of the task: one of lm-eval's, whose data is fetched from the hub once, or that of "
        "a YAML in `gate.tasks_dir`. A group's name means all of its tasks together."
    )
    max_drop: Drop = Field(
        description="Largest acceptable drop of the score, absolute: 0.01 is one point of a hundred."
    )
    metric: Text | None = Field(
        default=None,
        description="Metric that is judged, e.g. acc, acc_norm or, after one of several filters, "
        "exact_match,strict-match. Default: null, the task's first that is a mean over items.",
    )
    limit: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Items to run, drawn by data.seed over as many groups of items as there can be. "
        "Default: null, all.",
    )
    num_fewshot: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="Solved examples before each item. Default: null, as the task says.",
    )
    chat_template: bool = Field(
        default=False,
        description="Whether prompts are in the model's chat template, examples as turns. Default: false.",
    )
    cluster: Text | None = Field(
        default=None,
        description="Field of the task's documents whose equal values make items one piece of evidence, such "
        "as a passage with several questions. Default: null, the task's own metadata.cluster, else none.",
    )
    execute_code: bool = Field(
        default=False,
        description="Whether code that the model writes may be run on this machine, as humaneval and mbpp "
        "need it. Default: false, such tasks are refused.",
    )
    required: bool = Field(default=True, description=REQUIRED)


def tasks_are_unique(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """Refuse a task that is named twice, for a pydantic validator."""
    names = [task.name for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PydanticCustomError("repeated_task", "the task {name} is named twice", {"name": twice})
    return tasks


class GenerationLimits(Section):
    """How much of the text that a model generates has to stay the same, token by token."""

    min_identical: Drop | None = Field(
        default=None,
        description="Smallest acceptable share of prompts that both sides answer with the same tokens. "
        "Default: null, measured and reported, not judged.",
    )
    prompts: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=100,
        description="Prompts, the beginnings of evaluation documents drawn by data.seed. Default: 100.",
    )
    prompt_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = Field(
        default=64,
        description="Tokens of a prompt at most; of a short document its first half. Default: 64.",
    )
    output_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = Field(
        default=64, description="Tokens to generate for each prompt at most, greedily. Default: 64."
    )
    required: bool = Field(default=True, description=REQUIRED)


class Identity(Section):
    """Whether everything around the weights is the baseline's."""

    required: bool = Field(default=True, description=REQUIRED)


class CustomScorer(Section):
    """A scorer of your own: it gets what both sides generated and gives each of them a score per prompt."""

    name: Name = Field(description="Name of the criterion: a-z, 0-9, `.`, `_`, `-`.")
    function: Annotated[str, Field(pattern=r"^[^:]+:[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        default=None,
        description="A Python function as file:function, the file relative to the recipe: "
        "scorers/tone.py:score. Give this or `command`. Default: null.",
    )
    command: Annotated[tuple[Text, ...], Field(min_length=1, strict=False)] | None = Field(
        default=None,
        description="A program and its arguments, which may name files relative to the recipe: it reads one "
        "JSON object a line and writes one a line. Give this or `function`. Default: null.",
    )
    max_drop: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        description="Largest acceptable drop of the mean score, in the score's own unit."
    )
    higher_is_better: bool = Field(
        default=True, description="Whether more is better; if not, a rise is the drop. Default: true."
    )
    required: bool = Field(default=True, description=REQUIRED)

    @model_validator(mode="after")
    def _has_one_program(self) -> Self:
        if (self.function is None) == (self.command is None):
            raise PydanticCustomError("scorer", "give either function or command")
        return self
