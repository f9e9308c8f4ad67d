"""What the stages that assign precisions need to know."""

from typing import Literal

from pydantic import PositiveInt

from quantflow.formats.onnx.params import OnnxAssembleParams
from quantflow.formats.params import AssembleParams
from quantflow.gate.params import GateParams
from quantflow.measure.onnx_params import OnnxMeasureParams
from quantflow.pipeline.stage import StageParams


class Choosing(StageParams):
    """An artifact, what its units may be stored as, and which of them are not free.

    Attributes:
        assemble: How it is written; its `keep` has the recipe's, too.
        graph: How a graph is measured; None for what is measured in torch.
        force: Names or patterns of units that are quantized whatever they cost.
        ladder: Ids of the schemes that a unit may have, the artifact's own first.
        device: `cpu` or `cuda`.
        batch_tokens: As in the baseline's parameters.
    """

    assemble: AssembleParams | OnnxAssembleParams
    graph: OnnxMeasureParams | None = None
    force: tuple[str, ...] = ()
    ladder: tuple[str, ...]
    device: str
    batch_tokens: PositiveInt


class AssignParams(StageParams):
    """Parameters of an artifact's assign stage.

    Attributes:
        choosing: See there.
        policy: How units are chosen; by none of these where a search chooses.
        max_spared: Largest share of the weights that may be spared; None is no limit.
        effective_bits: Most bits per weight that may be quantized, scales counted; None is no limit.
        max_bytes: Most bytes of the artifact's tensors; None is no limit.
        threshold: Of the policy `threshold`, nats per token.
        top_k: Of the policy `top_k`, units.
    """

    choosing: Choosing
    policy: Literal["budget", "threshold", "top_k", "search"]
    max_spared: float | None = None
    effective_bits: float | None = None
    max_bytes: int | None = None
    threshold: float | None = None
    top_k: int | None = None


class SearchParams(StageParams):
    """Parameters of an artifact's search stage.

    Attributes:
        choosing: See there.
        gate: The gate's margins of what is judged on samples; what takes more is left out.
        max_spared: Largest share of the weights that may be spared.
        max_rounds: Most candidates beside the first one.
        remedied: Whether `codes` are other ones than those of the artifact with nothing spared: they are
            tried by themselves before anything is spared.
        time_limit: Seconds after which no further round is begun; None is no limit.
    """

    choosing: Choosing
    gate: GateParams
    max_spared: float
    max_rounds: PositiveInt
    remedied: bool = False
    time_limit: float | None = None
