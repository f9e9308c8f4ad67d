"""The stage that compares calibration text with a sample of production text."""

from pathlib import Path

from quantflow.data.params import default_slice
from quantflow.drift.params import DriftParams
from quantflow.errors import RecipeError
from quantflow.pipeline.data_params import data_params
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.onnx import onnx_codes
from quantflow.pipeline.stage import Stage
from quantflow.recipe.onnx import OnnxArtifact
from quantflow.recipe.schema import Recipe

DRIFT = "drift"


def drift_stage(recipe: Recipe, machine: Machine, digests: DigestCache) -> Stage | None:
    """The stage; None where the recipe names no production text.

    Args:
        recipe: A loaded recipe.
        machine: Where it will run.
        digests: Hashes of the files that the recipe names.

    Raises:
        RecipeError: A margin is set for what there is nothing to measure with, or production text is that
            which is calibrated on.
        StoreError: A file cannot be read.
    """
    data = recipe.data
    if not data.reference:
        if recipe.gate.drift is not None:
            raise RecipeError(
                "there is no production text to hold calibration text against",
                where="gate.drift",
                hint="Name a sample of it in data.reference.",
            )
        return None
    hashed = {name: digests.digest(Path(name)) for name in data.reference}
    own = {digests.digest(Path(name)): name for name in data.files}
    same = [name for name, content in hashed.items() if content in own]
    if same:
        raise RecipeError(
            f"{same[0]} is a file of data.files, too, so that it would be compared with itself",
            where="data.reference",
            hint="Name text that nothing is calibrated on.",
        )
    reading = data_params(data).reading
    inputs = {"source": "source", "data": "data"}
    if _has_calibrated_ranges(recipe):
        inputs["quantize"] = "quantize"
    return Stage(
        name=DRIFT,
        function="quantflow.drift.stage:run",
        params=DriftParams(
            files=data.reference,
            slices=tuple(default_slice(file, reading) for file in data.reference),
            reading=reading,
            tokens=data.calibration.windows * data.calibration.length,
            seed=data.seed,
            device=machine.device,
            batch_tokens=recipe.runtime.batch_tokens,
        ),
        inputs=inputs,
        on_device=True,
        external=hashed,
        resumable=True,
    )


def _has_calibrated_ranges(recipe: Recipe) -> bool:
    """Whether inputs of an artifact are INT8, so that ranges of all calibration tokens are kept."""
    schemes = (onnx_codes(a) for a in recipe.artifacts if isinstance(a, OnnxArtifact))
    return any(scheme is not None and scheme.is_int8 for scheme in schemes)
