"""Margins that a recipe leaves to a default which hangs on what an import turned out to be."""

from quantflow.formats.assembly import ImportedScheme
from quantflow.gate.margins import DEFAULTS, UNQUANTIZED, default_margin
from quantflow.gate.params import GateParams
from quantflow.pipeline.events import Reporter


def with_margins_of_import(
    params: GateParams, found: ImportedScheme | None, reporter: Reporter
) -> GateParams:
    """Fill in the margins that are defaults, and say which they are.

    Args:
        params: Margins, with `defaults` naming those to be filled in.
        found: How the import says that its weights are quantized; None where it says nothing, for which the
            tightest margins hold.
        reporter: Is told.
    """
    bits = UNQUANTIZED if found is None else found.bits
    margins: dict[str, float] = {name: default_margin(DEFAULTS[name], bits) for name in params.defaults}
    if found is None or (found.method is None and found.dtype is None):
        what = "what is not quantized, as nothing says how it is stored"
    elif found.method is None:
        what = f"what is not quantized ({found.dtype})"
    else:
        what = f"{bits} bits, which it was found to have"
    told = ", ".join(f"{name} {margin:g}" for name, margin in margins.items())
    reporter.event(
        "margins-of-import",
        f"{params.artifact} is judged by the default margins of {what}: {told}.",
        artifact=params.artifact,
        bits=bits,
        **margins,
    )
    return params.model_copy(update=margins)
