"""What assigning precisions and searching take: candidates written, read back and measured."""

from quantflow.formats.onnx.params import OnnxAssembleParams
from quantflow.measure.params import MeasureParams
from quantflow.plan import onnx
from quantflow.plan.files import artifact_bytes, assemble_cost
from quantflow.plan.measuring import measure_cost, on_selection
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost, Work
from quantflow.sensitivity.choosing import AssignParams, Choosing, SearchParams


def assign_cost(params: AssignParams, shape: ModelShape, text: TextSize) -> Cost:
    """The artifact with nothing spared and, where a policy chooses, the mix."""
    return _candidates(params.choosing, shape, text, 1 if params.policy == "search" else 2)


def search_cost(params: SearchParams, shape: ModelShape, text: TextSize) -> Cost:
    """As many candidates as there may be rounds; few searches need them all."""
    return _candidates(params.choosing, shape, text, params.max_rounds)


def _candidates(choosing: Choosing, shape: ModelShape, text: TextSize, count: int) -> Cost:
    if isinstance(choosing.assemble, OnnxAssembleParams):
        assert choosing.graph is not None
        written = onnx.assemble_cost(choosing.assemble, shape)
        measured = onnx.measure_cost(choosing.graph, shape, on_selection(text))
        size = written.disk_bytes or 0
    else:
        measuring = MeasureParams(device=choosing.device, batch_tokens=choosing.batch_tokens)
        written = assemble_cost(choosing.assemble, shape)
        measured = measure_cost(measuring, shape, on_selection(text))
        size = artifact_bytes(choosing.assemble, shape)
    work = (written.work or Work()) + (measured.work or Work())
    return Cost(
        work.times(count),
        host_bytes=max(written.host_bytes or 0, measured.host_bytes or 0),
        device_bytes=measured.device_bytes,
        disk_bytes=size + (measured.disk_bytes or 0),
        # The best candidate so far, the one at hand, and what lets its measurement go on.
        scratch_bytes=2 * size + measured.scratch_bytes,
    )
