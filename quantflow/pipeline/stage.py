"""A stage: one step whose output is a pure function of its inputs, its parameters and its code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from quantflow.pipeline.events import Reporter


class StageParams(BaseModel):
    """Base of every stage's resolved parameters; whatever changes the output is in here."""

    model_config = ConfigDict(frozen=True, extra="forbid")


StageFunction = Callable[[Any, Mapping[str, Path], Path, Reporter], None]


@dataclass(frozen=True)
class Stage:
    """One node of the stage graph.

    Attributes:
        name: Unique in the graph: `source`, or `measure:int4-awq` for the stage of one artifact.
        function: `module:function`, imported only when the stage has to run. It is called with
            `(params, inputs, output, reporter)`: its parameters, the finished output folder of each input
            by role, an empty folder to write to, and where to report.
        params: Resolved parameters.
        inputs: Role in this stage → name of the stage whose output plays it.
        on_device: Whether the output depends on the device and instruction set it was computed with.
        external: Files outside the workspace that the stage reads → SHA-256 of their content.
        artifact: Name of the artifact it works for; empty for the stages that all share.
        resumable: Whether it goes on in the output folder that an interrupted run left, with the help of the
            reporter's progress folder; others start anew in an empty one.
        again: Whether it runs in every run, stored or not, because its output is of the moment; so do the
            stages that it feeds.
    """

    name: str
    function: str
    params: StageParams
    inputs: Mapping[str, str] = field(default_factory=dict)
    on_device: bool = False
    external: Mapping[str, str] = field(default_factory=dict)
    artifact: str = ""
    resumable: bool = False
    again: bool = False

    @property
    def kind(self) -> str:
        """Name without the artifact: `measure` of `measure:int4-awq`."""
        return self.name.partition(":")[0]

    def load(self) -> StageFunction:
        """Import the stage's function."""
        module, _, name = self.function.partition(":")
        function: StageFunction = getattr(import_module(module), name)
        return function


def run_again(stages: Sequence[Stage]) -> frozenset[str]:
    """Names of the stages that no stored output answers, see `Stage.again`.

    Args:
        stages: In an order in which inputs come first.
    """
    names: set[str] = set()
    for stage in stages:
        if stage.again or names.intersection(stage.inputs.values()):
            names.add(stage.name)
    return frozenset(names)
