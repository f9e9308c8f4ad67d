"""Quantizes the benchmark's model with QuantFlow's own stages, as a run would.

    python run_quantflow.py SOURCE DATA OUTPUT METHOD [METHOD …]

SOURCE and DATA are outputs of those stages. What QuantFlow does beyond that (inspecting, measuring, gating) no
peer does, and is left out; the artifact is assembled in full. Several methods share one calibration.
"""

import sys
from pathlib import Path

from clock import measured
from printing import Printing

from quantflow.formats import assemble
from quantflow.formats.params import AssembleParams
from quantflow.quantize import stage as quantize
from quantflow.quantize.params import QuantizeParams

BATCH_TOKENS = 2048
"""QuantFlow's default."""
GROUP_SIZE = 64


def main() -> None:
    """Quantize and assemble."""
    source, data, output = map(Path, sys.argv[1:4])
    (method,) = sys.argv[4:]
    codes, artifact = output / "quantize", output / method
    codes.mkdir(parents=True)
    artifact.mkdir()
    with measured():
        quantize.run(
            QuantizeParams(
                method="awq", bits=4, group_size=GROUP_SIZE, device="cpu", batch_tokens=BATCH_TOKENS
            ),
            {"source": source, "data": data},
            codes,
            Printing(output / "progress"),
        )
        assemble.run(
            AssembleParams(name=method, format="awq", bits=4, group_size=GROUP_SIZE),
            {"source": source, "quantize": codes},
            artifact,
            Printing(output / "progress-assemble"),
        )


if __name__ == "__main__":
    main()
