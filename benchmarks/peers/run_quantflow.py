"""Quantizes the benchmark's model with QuantFlow's own stages, as a run would.

    python run_quantflow.py SOURCE DATA OUTPUT METHOD [METHOD …]

SOURCE and DATA are outputs of those stages. Schemes are what a recipe gets that names format, bits, groups
and symmetry and leaves the rest to its defaults. What QuantFlow does beyond that (inspecting, measuring,
gating) no peer does, and is left out; every artifact is assembled in full. Several methods share one
calibration.
"""

import sys
from pathlib import Path

from clock import measured
from printing import Printing

from quantflow.formats import assemble
from quantflow.formats.params import AssembleParams
from quantflow.quantize import refine
from quantflow.quantize import stage as quantize
from quantflow.quantize.params import QuantizeParams, RefineParams, Scheme
from quantflow.recipe.artifacts import AwqArtifact, GptqArtifact
from quantflow.recipe.scheme import scheme_of

BATCH_TOKENS = 2048
"""QuantFlow's default."""
GROUP_SIZE = 64


def _gptq(**keys: object) -> GptqArtifact:
    return GptqArtifact.model_validate(
        {"name": "artifact", "format": "gptq", "bits": 4, "group_size": GROUP_SIZE} | keys
    )


ARTIFACTS = {
    "awq": AwqArtifact(name="artifact", format="awq", bits=4, group_size=GROUP_SIZE),
    "gptq": _gptq(),
    "gptq_refined": _gptq(),
    "gptq_asymmetric": _gptq(symmetric=False),
    # The order that llm-compressor takes by default; it costs a runtime nothing, since groups stay in place.
    "gptq_ordered": _gptq(desc_act=True, static_groups=True),
    "rtn": _gptq(method="rtn"),
    "rtn_asymmetric": _gptq(method="rtn", symmetric=False),
}
REFINED = "gptq_refined"
"""The method that has the sequential refinement after it; the others are what it is without."""


def main() -> None:
    """Quantize and assemble."""
    source, data, output = map(Path, sys.argv[1:4])
    artifacts = {method: ARTIFACTS[method] for method in sys.argv[4:]}
    schemes = {method: scheme_of(artifact) for method, artifact in artifacts.items()}
    codes = output / "quantize"
    codes.mkdir()
    with measured():
        quantize.run(
            QuantizeParams(candidates=tuple(schemes.values()), device="cpu", batch_tokens=BATCH_TOKENS),
            {"source": source, "data": data},
            codes,
            Printing(output / "progress"),
        )
        if REFINED in schemes:
            codes = _refined(schemes[REFINED], source, data, codes, output)
        for method, scheme in schemes.items():
            (output / method).mkdir()
            assemble.run(
                AssembleParams(name=method, format=artifacts[method].format, scheme=scheme),
                {"source": source, "codes": codes},
                output / method,
                Printing(output / f"progress-assemble-{method}"),
            )


def _refined(scheme: Scheme, source: Path, data: Path, codes: Path, output: Path) -> Path:
    """Where the refine stage leaves its codes."""
    refined = output / "refine"
    refined.mkdir()
    refine.run(
        RefineParams(scheme=scheme, keep=(), device="cpu", batch_tokens=BATCH_TOKENS),
        {"source": source, "data": data, "codes": codes},
        refined,
        Printing(output / "progress-refine"),
    )
    return refined


if __name__ == "__main__":
    main()
