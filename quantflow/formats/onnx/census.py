"""What ONNX Runtime made of a graph's units when it optimised the graph."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantflow.errors import ArtifactError
from quantflow.formats.onnx.census_record import Census, Computes, Expectation, ExpectedUnit, UnitCensus

# ONNX Runtime's operators that multiply 8 bits with 8 bits. `QDQ` nodes that none of them replaced compute in
# floating point, from weights that were dequantized when the graph was loaded.
INT8_OPERATORS = frozenset(
    {
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulInteger16",
        "MatMulIntegerToFloat",
        "QGemm",
        "QLinearMatMul",
    }
)
NBITS = "MatMulNBits"
PRODUCTS = INT8_OPERATORS | {NBITS, "MatMul", "FusedMatMul", "Gemm", "FusedGemm"}
INPUTS = (".MatMul.input.", ".MatMul.remainder.")
FLOATING_PARTS = (".floating_weight", ".floating_input", ".floating_part")


def take_census(optimised: Path, expectation: Expectation, provider: str) -> Census:
    """Look through the graph that ONNX Runtime runs.

    Args:
        optimised: The graph as it was written after optimisation.
        expectation: What units are stored as.
        provider: Execution provider that runs it.

    Raises:
        ArtifactError: ONNX Runtime left no optimised graph that can be read.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        nodes = onnx.load(str(optimised), load_external_data=False).graph.node
    except (FileNotFoundError, DecodeError) as cause:
        raise ArtifactError(
            "ONNX Runtime left no optimised graph that can be read",
            where=str(optimised),
            hint="The disk may have been too small for it: it is as large as the artifact.",
        ) from cause
    makers = {output: node for node in nodes for output in node.output}
    stems = {stem: unit for unit, expected in expectation.units.items() for stem in expected.products}
    found: dict[str, list[tuple[str, Computes]]] = {unit: [] for unit in expectation.units}
    apart: Counter[str] = Counter()
    for node in nodes:
        if node.op_type not in PRODUCTS:
            continue
        names = [name for given in node.input for name in _behind(given, makers) if not _is_input(name)]
        unit = next((stems[stem] for name in names if (stem := _stem_of(name, stems))), None)
        if unit is None:
            continue
        if any(part in name for name in names for part in FLOATING_PARTS):
            apart[unit] += 1
        else:
            found[unit].append((node.op_type, _computes(node)))
    return Census(
        provider=provider,
        units={
            unit: _unit(expected, found[unit], apart[unit]) for unit, expected in expectation.units.items()
        },
        operators=dict(sorted(Counter(node.op_type for node in nodes).items())),
        float_share=expectation.float_share,
        unknown=expectation.unknown,
    )


def _unit(expected: ExpectedUnit, found: list[tuple[str, Computes]], apart: int) -> UnitCensus:
    # A product that cannot be found again was folded away or renamed: nothing good is to be assumed of it.
    missing = len(found) < len(expected.products) and not (found and expected.computes == "float")
    kinds: set[Computes] = {kind for _, kind in found} | ({"float"} if missing else set())
    order: tuple[Computes, ...] = ("float", "weights-int4", "weights-int8", "int8")
    return UnitCensus(
        expected=expected.computes,
        found=next(kind for kind in order if kind in kinds),
        operators=dict(sorted(Counter(operator for operator, _ in found).items())),
        float_parts=apart,
    )


def _computes(node: Any) -> Computes:
    if node.op_type in INT8_OPERATORS:
        return "int8"
    if node.op_type != NBITS:
        return "float"
    bits = next((attribute.i for attribute in node.attribute if attribute.name == "bits"), 4)
    return "weights-int4" if bits == 4 else "weights-int8"


def _behind(name: str, makers: Mapping[str, Any]) -> list[str]:
    """A product's input and, where it is a dequantized or reshaped constant, what that is made of."""
    maker = makers.get(name)
    if maker is None or maker.op_type not in ("DequantizeLinear", "Transpose", "Cast", "Gather"):
        return [name]
    return [name, *maker.input]


def _is_input(name: str) -> bool:
    """Whether a name is of a rounded input, which products of several units may share."""
    return any(part in name for part in INPUTS)


def _stem_of(name: str, stems: Mapping[str, str]) -> str | None:
    """The product that a constant belongs to by its name."""
    if name in stems:
        return name  # a graph of somebody else's may call its constants what it likes
    parts = name.split(".MatMul")
    stem = f"{parts[0]}.MatMul"
    return stem if len(parts) > 1 and stem in stems else None
