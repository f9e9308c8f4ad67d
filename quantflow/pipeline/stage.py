"""A stage: one step whose output is a pure function of its inputs, its parameters and its code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from quantflow.pipeline.events import Reporter


class StageParams(BaseModel):
    """Base of every stage's resolved parameters; whatever changes the output is in here."""

    model_config = ConfigDict(frozen=True, extra="forbid")


StageFunction = Callable[[StageParams, Mapping[str, Path], Path, Reporter], None]


@dataclass(frozen=True)
class Stage:
    """One node of the stage graph.

    Attributes:
        name: Unique in the graph, e.g. `source` or `measure:int4-awq`.
        function: `module:function`, imported only when the stage has to run. It is called with
            `(params, inputs, output, reporter)`: its parameters, the finished output folder of each input
            by role, an empty folder to write to, and where to report.
        params: Resolved parameters.
        inputs: Role in this stage → name of the stage whose output plays it.
        code: Modules and packages of quantflow whose source decides the output, e.g. `("quantflow.source",)`.
        libraries: Distributions whose version may change the output.
        on_device: Whether the output depends on the device and instruction set it was computed with.
        external: Files outside the workspace that the stage reads → SHA-256 of their content.
    """

    name: str
    function: str
    params: StageParams
    inputs: Mapping[str, str] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    on_device: bool = False
    external: Mapping[str, str] = field(default_factory=dict)

    def load(self) -> StageFunction:
        """Import the stage's function."""
        module, _, name = self.function.partition(":")
        function: StageFunction = getattr(import_module(module), name)
        return function
