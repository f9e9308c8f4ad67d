"""The stage that runs the baseline once more, in other batches."""

from quantflow.formats.onnx.params import SessionOptions
from quantflow.measure.onnx_params import OnnxNoiseParams
from quantflow.measure.params import NoiseParams
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage

NOISE, GRAPH_NOISE = "noise", "noise:onnx"

NOISE_WINDOWS = 16
"""Evaluation windows that the baseline is run on again: the floor's size is wanted, not its last digit."""


def noise_stage(machine: Machine, batch_tokens: int, baseline: str) -> Stage:
    """The stage beside a baseline that is measured in torch.

    Args:
        machine: Where it will run.
        batch_tokens: The baseline's.
        baseline: Name of its stage.
    """
    return Stage(
        name=NOISE,
        function="quantflow.measure.noise:run",
        params=NoiseParams(device=machine.device, batch_tokens=batch_tokens, windows=NOISE_WINDOWS),
        inputs={"source": "source", "data": "data", "baseline": baseline},
        on_device=True,
        resumable=True,
    )


def graph_noise_stage(session: SessionOptions, base: str, baseline: str) -> Stage:
    """The stage beside the lossless graph's baseline.

    Args:
        session: The baseline's options.
        base: Name of the stage that made the graph.
        baseline: Name of the baseline's stage.
    """
    return Stage(
        name=GRAPH_NOISE,
        function="quantflow.measure.onnx_noise:run",
        params=OnnxNoiseParams(session=session, windows=NOISE_WINDOWS),
        inputs={"base": base, "data": "data", "baseline": baseline},
        on_device=True,
        resumable=True,
    )
