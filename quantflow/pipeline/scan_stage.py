"""The stage that scores units, as a recipe asks for it."""

from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage
from quantflow.recipe.artifacts import is_quantized_here
from quantflow.recipe.schema import Recipe
from quantflow.recipe.scheme import scheme_of
from quantflow.sensitivity.params import ChoiceParams, ScanParams

SCAN = "scan"


def scan_stage(recipe: Recipe, machine: Machine) -> Stage | None:
    """One scan in the schemes of all artifacts, as one pass serves them all; None where none is quantized."""
    schemes = {
        scheme.id: scheme for scheme in map(scheme_of, (a for a in recipe.artifacts if is_quantized_here(a)))
    }
    if not schemes:
        return None
    return Stage(
        name=SCAN,
        function="quantflow.sensitivity.scan:run",
        params=ScanParams(
            precisions=tuple(scheme for _, scheme in sorted(schemes.items())),
            choices=tuple(ChoiceParams(precisions=(scheme_id,)) for scheme_id in sorted(schemes)),
            device=machine.device,
            batch_tokens=recipe.runtime.batch_tokens,
        ),
        inputs={"source": "source", "data": "data", "codes": "quantize"},
        on_device=True,
        resumable=True,
    )
