"""What the scan stage needs to know."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from quantflow.formats.onnx.params import OnnxAssembleParams
from quantflow.formats.params import AssembleParams
from quantflow.pipeline.stage import StageParams
from quantflow.quantize.params import Scheme, int8_scheme
from quantflow.sensitivity.record import ScoreMethod

DEFAULT_TOKENS = 4096
"""Eight windows' worth: on SmolLM2-135M the order of units hardly changes with more."""


def ladder_of(scheme: Scheme) -> tuple[str, ...]:
    """Ids of the precisions that a unit may have in an artifact of a scheme, the source's dtype left out.

    W8A8 has one between: the same codes with inputs in floating point, which run weight-only.
    """
    return (scheme.id, int8_scheme("int8").id) if scheme.method == "w8a8" else (scheme.id,)


class ChoiceParams(StageParams):
    """What an artifact does with the scores, as far as it decides which of them have to be exact.

    Attributes:
        precisions: Ids of the schemes that a unit may get, the artifact's own first; then comes the source's
            dtype.
        policy: How units are chosen.
        max_spared: Of `budget`: largest share of the weights that may be spared; None is no limit.
        effective_bits: Of `budget`: most bits per weight of the units; None is no limit.
        max_bytes: Of `budget`: most bytes of the artifact's tensors; None is no limit.
        sized: The artifact, where `max_bytes` asks how large it is with nothing spared.
        threshold: Of `threshold`: KL above which a unit is spared, nats per token.
        top_k: Of `top_k`: how many units are spared.
        keep: Names or patterns of units that stay as they are whatever they cost.
        force: Names or patterns of units that are quantized whatever they cost.
        graph: Whether it is a graph, which has units that stay as they are in float32; of other formats they
            are in the source's 16 bits.
    """

    precisions: tuple[str, ...] = Field(min_length=1)
    policy: Literal["budget", "threshold", "top_k"] = "budget"
    max_spared: float | None = Field(default=0.1, ge=0, le=1)
    effective_bits: float | None = Field(default=None, gt=0)
    max_bytes: int | None = Field(default=None, gt=0)
    sized: AssembleParams | OnnxAssembleParams | None = None
    threshold: float | None = Field(default=None, ge=0)
    top_k: int | None = Field(default=None, ge=0)
    keep: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    graph: bool = False

    @model_validator(mode="after")
    def _has_its_number(self) -> Self:
        given = {"threshold": self.threshold, "top_k": self.top_k}
        if any((value is not None) != (policy == self.policy) for policy, value in given.items()):
            raise ValueError(f"policy {self.policy} does not go with {given}")
        if (self.max_bytes is None) != (self.sized is None):
            raise ValueError("max_bytes says nothing without the artifact that it is of")
        return self


class ScanParams(StageParams):
    """Parameters of the scan stage.

    Attributes:
        precisions: The schemes whose codes are swapped in; the quantize stage has made them.
        weights_only: Whether W8A8's values are scored with inputs in floating point as well: its middle rung.
        method: How units are scored.
        tokens: Calibration tokens to scan on, about; and as many selection tokens.
        device: `cpu` or `cuda`.
        batch_tokens: Tokens that pass a block at once, at most (at least one window does).
    """

    precisions: tuple[Scheme, ...] = Field(min_length=1)
    weights_only: bool = False
    method: ScoreMethod = "fisher"
    tokens: PositiveInt = DEFAULT_TOKENS
    device: Literal["cpu", "cuda"]
    batch_tokens: PositiveInt

    @property
    def candidates(self) -> int:
        """Precisions that every unit is scored in."""
        middle = sum(scheme.method == "w8a8" for scheme in self.precisions) if self.weights_only else 0
        return len(self.precisions) + middle


class SettleParams(StageParams):
    """Parameters of the settle stage.

    Attributes:
        scan: Those of the scan whose estimates are settled.
        choices: What the scores are for.
    """

    scan: ScanParams
    choices: tuple[ChoiceParams, ...] = Field(min_length=1)
