"""The cost of every kind of stage, by the function that runs it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from quantflow.data.params import DataParams
from quantflow.drift.params import DriftParams
from quantflow.formats.onnx.params import (
    OnnxAssembleParams,
    OnnxBaseParams,
    OnnxCheckParams,
    OnnxImportParams,
)
from quantflow.formats.params import AssembleParams, ExportParams, ImportParams
from quantflow.gate.params import GateParams
from quantflow.inspection.params import InspectParams
from quantflow.leakage.params import LeakageParams
from quantflow.measure.adaptive_params import AdaptiveParams
from quantflow.measure.onnx_params import (
    OnnxFidelityParams,
    OnnxGenerationParams,
    OnnxMeasureParams,
    OnnxNoiseParams,
    OnnxSpeedParams,
)
from quantflow.measure.params import (
    BaselineParams,
    CustomParams,
    GenerationParams,
    MeasureParams,
    NoiseParams,
    YardstickParams,
)
from quantflow.pipeline.stage import StageParams
from quantflow.plan import onnx
from quantflow.plan.asked import (
    BASELINE_RUNS,
    UNCOUNTED_TASKS,
    custom_cost,
    generation_cost,
    import_cost,
    tasks_cost,
)
from quantflow.plan.assigning import assign_cost, search_cost
from quantflow.plan.drifting import drift_cost
from quantflow.plan.files import (
    assemble_cost,
    check_cost,
    data_cost,
    export_cost,
    gate_cost,
    inspect_cost,
    source_cost,
)
from quantflow.plan.measuring import baseline_cost, measure_cost, noise_cost, yardstick_cost
from quantflow.plan.model import PlannedModel
from quantflow.plan.quantizing import quantize_cost
from quantflow.plan.refining import refine_cost
from quantflow.plan.remedying import remedy_cost
from quantflow.plan.scanning import scan_cost, settle_cost
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost
from quantflow.quantize.params import CheckParams, QuantizeParams, RefineParams, RemedyParams
from quantflow.sensitivity.choosing import AssignParams, SearchParams
from quantflow.sensitivity.params import ScanParams, SettleParams
from quantflow.source.params import SourceParams
from quantflow.tasks.params import OnnxTasksParams, TasksParams


@dataclass(frozen=True)
class Facts:
    """What a plan goes by.

    Attributes:
        model: The recipe's model.
        text: The recipe's text; None where it cannot be told how much there is.
        no_text: Why not.
    """

    model: PlannedModel
    text: TextSize | None = None
    no_text: str = ""


@dataclass(frozen=True)
class _Stage:
    """How one kind of stage is costed."""

    params: type[StageParams]
    cost: Callable[[Any, Facts], Cost]


def _with_shape(count: Callable[[Any, Any], Cost]) -> Callable[[Any, Facts], Cost]:
    def cost(params: StageParams, facts: Facts) -> Cost:
        if facts.model.shape is None:
            return Cost(unknown=facts.model.unknown)
        return count(params, facts.model.shape)

    return cost


def _with_text(count: Callable[[Any, Any, TextSize], Cost]) -> Callable[[Any, Facts], Cost]:
    def cost(params: StageParams, facts: Facts) -> Cost:
        if facts.model.shape is None:
            return Cost(unknown=facts.model.unknown)
        if facts.text is None:
            return Cost(unknown=facts.no_text)
        return count(params, facts.model.shape, facts.text)

    return cost


def _data(params: DataParams, facts: Facts) -> Cost:
    return Cost(unknown=facts.no_text) if facts.text is None else data_cost(params, facts.text)


STAGES: Mapping[str, _Stage] = {
    "quantflow.source.stage:run": _Stage(SourceParams, lambda params, facts: source_cost(facts.model)),
    "quantflow.quantize.check:run": _Stage(CheckParams, lambda params, facts: check_cost(facts.model)),
    "quantflow.inspection.stage:run": _Stage(InspectParams, _with_shape(inspect_cost)),
    "quantflow.data.stage:run": _Stage(DataParams, _data),
    "quantflow.measure.baseline:run": _Stage(BaselineParams, _with_text(baseline_cost)),
    "quantflow.measure.noise:run": _Stage(NoiseParams, _with_text(noise_cost)),
    "quantflow.drift.stage:run": _Stage(DriftParams, _with_text(drift_cost)),
    "quantflow.quantize.stage:run": _Stage(QuantizeParams, _with_text(quantize_cost)),
    "quantflow.quantize.refine:run": _Stage(RefineParams, _with_text(refine_cost)),
    "quantflow.remedies.stage:run": _Stage(RemedyParams, _with_text(remedy_cost)),
    "quantflow.sensitivity.scan:run": _Stage(ScanParams, _with_text(scan_cost)),
    "quantflow.sensitivity.settle_stage:run": _Stage(SettleParams, _with_text(settle_cost)),
    "quantflow.measure.yardstick:run": _Stage(YardstickParams, _with_text(yardstick_cost)),
    "quantflow.formats.assemble:run": _Stage(AssembleParams, _with_shape(assemble_cost)),
    "quantflow.formats.export:run": _Stage(ExportParams, _with_shape(export_cost)),
    "quantflow.measure.artifact:run": _Stage(MeasureParams, _with_text(measure_cost)),
    "quantflow.measure.adaptive:run": _Stage(AdaptiveParams, _with_text(measure_cost)),  # at most
    "quantflow.formats.onnx.check:run": _Stage(
        OnnxCheckParams, lambda params, facts: onnx.check_cost(params)
    ),
    "quantflow.formats.onnx.base:run": _Stage(OnnxBaseParams, _with_shape(onnx.base_cost)),
    "quantflow.formats.onnx.assemble:run": _Stage(OnnxAssembleParams, _with_shape(onnx.assemble_cost)),
    "quantflow.measure.onnx:baseline": _Stage(OnnxMeasureParams, _with_text(onnx.baseline_cost)),
    "quantflow.measure.onnx:artifact": _Stage(OnnxMeasureParams, _with_text(onnx.measure_cost)),
    "quantflow.measure.onnx_fidelity:run": _Stage(OnnxFidelityParams, _with_shape(onnx.fidelity_cost)),
    "quantflow.measure.onnx_noise:run": _Stage(OnnxNoiseParams, _with_text(onnx.noise_cost)),
    "quantflow.measure.onnx_speed:run": _Stage(OnnxSpeedParams, _with_shape(onnx.speed_cost)),
    "quantflow.measure.onnx_generation:baseline": _Stage(
        OnnxGenerationParams, _with_shape(partial(onnx.generation_cost, runs=BASELINE_RUNS))
    ),
    "quantflow.measure.onnx_generation:artifact": _Stage(
        OnnxGenerationParams, _with_shape(onnx.generation_cost)
    ),
    "quantflow.tasks.graph_stage:baseline": _Stage(OnnxTasksParams, _with_shape(onnx.tasks_cost)),
    "quantflow.tasks.graph_stage:artifact": _Stage(OnnxTasksParams, _with_shape(onnx.tasks_cost)),
    "quantflow.formats.onnx.imported:run": _Stage(OnnxImportParams, _with_shape(onnx.import_cost)),
    "quantflow.tasks.stage:baseline": _Stage(TasksParams, _with_shape(tasks_cost)),
    "quantflow.tasks.stage:artifact": _Stage(TasksParams, _with_shape(tasks_cost)),
    "quantflow.leakage.stage:run": _Stage(LeakageParams, lambda params, facts: Cost(unknown=UNCOUNTED_TASKS)),
    "quantflow.measure.generation:baseline": _Stage(
        GenerationParams, _with_shape(partial(generation_cost, runs=BASELINE_RUNS))
    ),
    "quantflow.measure.generation:artifact": _Stage(GenerationParams, _with_shape(generation_cost)),
    "quantflow.measure.custom:run": _Stage(CustomParams, lambda params, facts: custom_cost(params)),
    "quantflow.formats.imported:run": _Stage(ImportParams, lambda params, facts: import_cost(params)),
    "quantflow.sensitivity.assign_stage:run": _Stage(AssignParams, _with_text(assign_cost)),
    "quantflow.sensitivity.search_stage:run": _Stage(SearchParams, _with_text(search_cost)),
    "quantflow.gate.stage:run": _Stage(GateParams, lambda params, facts: gate_cost()),
}


def cost_of(function: str, params: StageParams, facts: Facts) -> Cost:
    """What a stage takes; all unknown, and said to be so, for a kind that nobody has counted.

    Args:
        function: Of the stage.
        params: Of the stage.
        facts: Model and text.
    """
    if function not in STAGES:
        return Cost(unknown="what this kind of stage takes has not been counted")
    return STAGES[function].cost(params, facts)


def stored_params(function: str, params: Mapping[str, Any]) -> StageParams | None:
    """Parameters as a manifest has them; None where they are those of another version of the stage."""
    try:
        return STAGES[function].params.model_validate(params)
    except (KeyError, ValueError):
        return None
