"""What the stages that run tasks are asked."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, PositiveInt

from quantflow.formats.onnx.params import SessionOptions
from quantflow.pipeline.stage import StageParams


class TaskSpec(BaseModel):
    """One task, as both sides run it.

    Attributes:
        name: As lm-eval knows it, or as a YAML of the tasks folder calls it; a group's name means all in it.
        metric: `acc`, or `exact_match,strict-match` with the filter it is taken after; None for the task's
            first metric that is a mean over items.
        limit: Items to draw; None for all.
        num_fewshot: Solved examples before each item; None for the task's own number.
        chat_template: Whether prompts are put in the model's chat template.
        cluster: Field of the task's documents that groups items; None for the task's own
            `metadata.cluster`, or for every item by itself.
        execute_code: Whether code that the model writes may be run, as some tasks do to score it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    metric: str | None = None
    limit: PositiveInt | None = None
    num_fewshot: int | None = None
    chat_template: bool = False
    cluster: str | None = None
    execute_code: bool = False


class TaskListParams(StageParams):
    """What all sides are run on, in whatever runtime.

    Attributes:
        tasks: What to run.
        files: Files of the tasks folder by their name in it → where they are.
        seed: Items are drawn by it.
    """

    tasks: tuple[TaskSpec, ...]
    files: Mapping[str, str]
    seed: int

    @property
    def tasks_dir(self) -> Path | None:
        """The folder of local tasks; None where there is none."""
        for name, path in self.files.items():
            return Path(path).parents[len(Path(name).parts) - 1]
        return None


class TasksParams(TaskListParams):
    """Resolved parameters of the stages that run tasks in torch, baseline's and artifacts' alike.

    Attributes:
        device: Where to compute: `cpu` or `cuda`.
        batch_tokens: Most tokens of a batch, padding included.
    """

    device: str
    batch_tokens: PositiveInt


class OnnxTasksParams(TaskListParams):
    """Resolved parameters of the stages that run tasks in ONNX Runtime, one prompt at a time.

    Attributes:
        session: Its pinned options.
    """

    session: SessionOptions
