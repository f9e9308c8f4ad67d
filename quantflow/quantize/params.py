"""What the check and quantize stages need to know."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from quantflow.pipeline.stage import StageParams

Method = Literal["awq", "gptq", "rtn", "awq+gptq", "int8", "w8a8"]
INT8_METHODS: tuple[Method, ...] = ("int8", "w8a8")
"""Weights in INT8, one scale for each output; with w8a8 inputs in INT8 as well, one scale for each tensor."""
Bits = Literal[2, 3, 4, 8]
DEFAULT_DAMPING = 0.01


class Scheme(StageParams):
    """How weights are quantized: everything that the codes of a linear depend on beside the calibration.

    Attributes:
        method: Algorithm that chooses the codes.
        bits: Width of a code.
        group_size: Input channels that share a scale and a zero point; -1 for all of a layer's.
        symmetric: Whether the zero point is in the middle of the codes everywhere.
        desc_act: Whether GPTQ takes the columns by descending activation.
        static_groups: Whether GPTQ fixes the groups' scales before it changes any weight.
        damping: Part of the mean of the Hessian's diagonal that GPTQ adds to it.
        scale_search: Whether a group's scale spans its range or is searched for the least squared error.
    """

    method: Method
    bits: Bits
    group_size: int = Field(ge=-1)
    symmetric: bool = False
    desc_act: bool = False
    static_groups: bool = False
    damping: float = DEFAULT_DAMPING
    scale_search: Literal["minmax", "mse"] = "minmax"

    @property
    def id(self) -> str:
        """A short name that no other scheme has, e.g. `gptq-w4-g128-sym`."""
        group = "row" if self.group_size == -1 else f"g{self.group_size}"
        parts = [self.method, f"w{self.bits}", group, "sym" if self.symmetric else "asym"]
        parts += ["act"] if self.desc_act else []
        parts += ["static"] if self.static_groups else []
        parts += [f"d{self.damping}"] if self.damping != DEFAULT_DAMPING else []
        parts += ["mse"] if self.scale_search == "mse" else []
        return "-".join(parts)

    @property
    def is_int8(self) -> bool:
        """Whether codes are `Int8Linear`s, for ONNX, instead of grids of groups."""
        return self.method in INT8_METHODS

    def group_width(self, inputs: int) -> int:
        """Input channels that share a scale in a layer that has `inputs` of them."""
        return inputs if self.group_size == -1 else self.group_size

    def divides(self, inputs: int) -> bool:
        """Whether groups come out even in a layer that has so many inputs."""
        return inputs % self.group_width(inputs) == 0


def int8_scheme(method: Literal["int8", "w8a8"]) -> Scheme:
    """The scheme of a method of `INT8_METHODS`, which leaves nothing else to choose."""
    return Scheme(method=method, bits=8, group_size=-1, symmetric=True)


class PlannedArtifact(StageParams):
    """What is to be made of the model, as far as its shapes decide whether it can be.

    Attributes:
        format: Layout on disk.
        scheme: How weights are quantized.
        keep: Names or patterns of units that stay as they are.
    """

    format: Literal["awq", "gptq"]
    scheme: Scheme
    keep: tuple[str, ...] = ()


class CheckParams(StageParams):
    """Parameters of the check stage.

    Attributes:
        artifacts: Key of the recipe, e.g. `artifacts[0]` → the quantized artifact that it asks for.
        window_lengths: Key of the recipe → length of the windows it asks for, tokens.
        keep: Names or patterns of units that every artifact keeps, of `sensitivity.keep`.
        force: Names or patterns of units that no artifact may keep, of `sensitivity.force`.
    """

    artifacts: Mapping[str, PlannedArtifact]
    window_lengths: Mapping[str, int]
    keep: tuple[str, ...] = ()
    force: tuple[str, ...] = ()


class QuantizeParams(StageParams):
    """Parameters of the quantize stage.

    Attributes:
        candidates: What weights are quantized in, one after the other from one calibration; each once.
        device: `cpu` or `cuda`.
        calibration_dtype: What the products of the calibration forward are computed in.
        batch_tokens: Calibration tokens that pass a block at once, at most (at least one window does).
    """

    candidates: tuple[Scheme, ...]
    device: Literal["cpu", "cuda"]
    calibration_dtype: Literal["float32", "bfloat16"] = "float32"
    batch_tokens: int = Field(gt=0)


class RemedyParams(StageParams):
    """Parameters of the remedy stage of an artifact in INT8.

    Attributes:
        scheme: One of `INT8_METHODS`.
        keep: Names or patterns of units that stay as they are.
        max_floating: Share of the elements of all linear layers, kept units counted in, that may be in
            floating point.
        reduced: Whether weights use no more codes than processors without VNNI can add up in 16 bits.
        device: `cpu` or `cuda`.
        batch_tokens: Tokens that pass a block at once, at most (at least one window does).
    """

    scheme: Scheme
    keep: tuple[str, ...] = ()
    max_floating: float = Field(default=0.1, ge=0, le=1)
    reduced: bool = False
    device: Literal["cpu", "cuda"]
    batch_tokens: int = Field(gt=0)


class RefineParams(StageParams):
    """Parameters of an artifact's refine stage.

    Attributes:
        scheme: The scheme of the codes that are refined.
        keep: Names or patterns of units that stay as they are.
        device: `cpu` or `cuda`.
        calibration_dtype: What the products of the calibration forwards are computed in.
        batch_tokens: Tokens that pass a block at once, at most (at least one window does).
    """

    scheme: Scheme
    keep: tuple[str, ...]
    device: Literal["cpu", "cuda"]
    calibration_dtype: Literal["float32", "bfloat16"] = "float32"
    batch_tokens: int = Field(gt=0)
