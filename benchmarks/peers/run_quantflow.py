"""Quantizes the benchmark's model with QuantFlow's own stages, as a run would.

    python run_quantflow.py SOURCE DATA OUTPUT METHOD [METHOD …]

SOURCE and DATA are outputs of those stages. What QuantFlow does beyond that (inspecting, measuring, gating)
no peer does, and is left out; every artifact is assembled in full. Several methods share one calibration.
"""

import sys
from pathlib import Path

from clock import measured
from printing import Printing

from quantflow.formats import assemble
from quantflow.formats.params import AssembleParams
from quantflow.quantize import stage as quantize
from quantflow.quantize.params import QuantizeParams, Scheme

BATCH_TOKENS = 2048
"""QuantFlow's default."""
GROUP_SIZE = 64

SCHEMES = {
    "awq": Scheme(method="awq", bits=4, group_size=GROUP_SIZE, symmetric=False),
    "gptq": Scheme(method="gptq", bits=4, group_size=GROUP_SIZE, symmetric=True),
    "gptq_asymmetric": Scheme(method="gptq", bits=4, group_size=GROUP_SIZE, symmetric=False),
    "rtn": Scheme(method="rtn", bits=4, group_size=GROUP_SIZE, symmetric=True),
    "rtn_asymmetric": Scheme(method="rtn", bits=4, group_size=GROUP_SIZE, symmetric=False),
}


def main() -> None:
    """Quantize and assemble."""
    source, data, output = map(Path, sys.argv[1:4])
    schemes = {method: SCHEMES[method] for method in sys.argv[4:]}
    codes = output / "quantize"
    codes.mkdir()
    with measured():
        quantize.run(
            QuantizeParams(candidates=tuple(schemes.values()), device="cpu", batch_tokens=BATCH_TOKENS),
            {"source": source, "data": data},
            codes,
            Printing(output / "progress"),
        )
        for method, scheme in schemes.items():
            (output / method).mkdir()
            layout = "awq" if scheme.method == "awq" else "gptq"
            assemble.run(
                AssembleParams(name=method, format=layout, scheme=scheme),
                {"source": source, "codes": codes},
                output / method,
                Printing(output / "progress"),
            )


if __name__ == "__main__":
    main()
