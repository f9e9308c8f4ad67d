"""The assemble stage of ONNX artifacts: the lossless graph with its linears quantized, in a folder that runs.

Goes through the graph one tensor at a time; `dynamic` is ONNX Runtime's own work and holds the whole model.
"""

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from quantflow.errors import ArtifactError, QuantizationError
from quantflow.formats.assembly import ARTIFACT_FOLDER, WRITTEN_FOLDER, Assembly, pass_on, save_assembly
from quantflow.formats.codes_reader import CodesReader
from quantflow.formats.folder import folder_bytes, write_provenance
from quantflow.formats.onnx.base import BaseGraph, load_base
from quantflow.formats.onnx.census_record import COMPUTES, Expectation, ExpectedUnit, save_expectation
from quantflow.formats.onnx.companions import write_companions
from quantflow.formats.onnx.dynamic import quantize_dynamically
from quantflow.formats.onnx.folded import fold_into, folded_by_artifact
from quantflow.formats.onnx.graph_file import GraphFile, Source, planned_bytes, write_graph
from quantflow.formats.onnx.int8_values import Int8Values
from quantflow.formats.onnx.linears import GraphLinear
from quantflow.formats.onnx.params import DATA_FILE, GRAPH_FILE, OnnxAssembleParams
from quantflow.formats.onnx.plans import Int8Plan, Planned
from quantflow.formats.onnx.rewrite import rewrite
from quantflow.formats.onnx.values import (
    Latest,
    given_codes,
    given_int8,
    rounded_by_block,
    rounded_per_channel,
)
from quantflow.formats.read import open_artifact
from quantflow.model.build import family_at
from quantflow.model.config import load_config
from quantflow.model.units import kept_of_all
from quantflow.model.weights import SafetensorsReader, WeightReader
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.storage import of_storage
from quantflow.quantize.params import int8_scheme
from quantflow.sensitivity.kept import ASSIGNMENT
from quantflow.source.checkpoint import Checkpoint, load_checkpoint

WHAT = {
    "fp32": "the model itself in float32",
    "fp16": "the model itself in float16",
    "w8a8": "weights INT8 per channel, activations INT8 per tensor with static scales",
    "w8": "weights INT8 per channel, activations in floating point",
    "w8-block": "weights INT8 by block (MatMulNBits), activations in floating point",
    "w4-block": "weights INT4 by block (MatMulNBits), activations in floating point",
    "dynamic": "weights INT8 per channel, activations INT8 by their range at every call (quantize_dynamic)",
}
DTYPES = {"fp32": "float32", "fp16": "float16"}


def run(params: OnnxAssembleParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Write the artifact to `artifact/`, what it came to, and which unit is to run in what, for the census.

    Args:
        params: Scheme, kept units and session options.
        inputs: Finished outputs of `source` and `base`; of `codes`, the assemble stage of the artifact whose
            codes are taken, or of `values`, the stage that made INT8 values, where there is one; of
            `assignment`, the stage that chose which units to keep and wrote the artifact, where one did.
        output: Folder to write to.
        reporter: Receives progress.

    Raises:
        QuantizationError: The graph or given codes do not suit the scheme.
        ArtifactError: The graph, or the artifact that codes are from, cannot be read.
    """
    if ASSIGNMENT in inputs:
        pass_on(inputs[ASSIGNMENT] / WRITTEN_FOLDER, output)
        return
    checkpoint, base = load_checkpoint(inputs["source"]), load_base(inputs["base"])
    kept = _kept(params, checkpoint)
    graph = GraphFile(base.folder / GRAPH_FILE)
    folder = output / ARTIFACT_FOLDER
    folder.mkdir()
    with reporter.track(f"assemble {params.name}", 2) as advance:
        if params.scheme == "dynamic":
            planned: Mapping[str, Planned | None] = _write_dynamic(
                base, kept, folder, reporter.progress_folder / "dynamic"
            )
        else:
            planned, changed = _rewritten(params, inputs, base, graph)
            write_graph(graph, changed, folder)
        advance(1)
        expectation = _expectation(params, base, planned)
        dtype = DTYPES[base.precision]
        write_companions(
            checkpoint, base.folder, folder, params.name, WHAT[params.scheme], params.session, dtype
        )
        write_provenance(checkpoint, folder, _facts(params, base, expectation))
        written = GraphFile(folder / GRAPH_FILE)
        advance(1)
    stored = SafetensorsReader(checkpoint.folder)
    assembly = Assembly(
        folder=folder,
        name=params.name,
        format="onnx",
        bytes=folder_bytes(folder),
        weight_bytes=written.weight_bytes,
        source_weight_bytes=sum(stored.spec(name).bytes for name in stored.names()),
        quantized_linears=sum(len(linear.parts) for linear in base.linears if linear.weight in planned),
        kept_units=tuple(unit for unit in expectation.units if unit in kept),
    )
    save_expectation(output, expectation)
    save_assembly(output, assembly)


def planned_size(params: OnnxAssembleParams, inputs: Mapping[str, Path]) -> int:
    """Bytes of the tensors of an artifact whose INT8 values a stage made, before it is written.

    Args:
        params: As of `run`.
        inputs: Finished outputs of `source`, `base` and `values`.
    """
    base = load_base(inputs["base"])
    graph = GraphFile(base.folder / GRAPH_FILE)
    _, changed = _rewritten(params, inputs, base, graph)
    return planned_bytes(graph, changed)


def _kept(params: OnnxAssembleParams, checkpoint: Checkpoint) -> frozenset[str]:
    family = family_at(checkpoint.folder, checkpoint.model_type)
    return kept_of_all(params.keep, family, load_config(checkpoint.folder).num_hidden_layers)


def _rewritten(
    params: OnnxAssembleParams, inputs: Mapping[str, Path], base: BaseGraph, graph: GraphFile
) -> tuple[dict[str, Planned], dict[str, Source]]:
    """Change a graph's nodes: what its linears become, and the constants that are new or another value."""
    checkpoint = load_checkpoint(inputs["source"])
    family, kept = family_at(checkpoint.folder, checkpoint.model_type), _kept(params, checkpoint)
    donor = open_artifact(inputs["codes"] / ARTIFACT_FOLDER) if "codes" in inputs else None
    values = None
    if "values" in inputs:
        method: Literal["w8a8", "int8"] = "w8a8" if params.scheme == "w8a8" else "int8"
        blocks = load_config(checkpoint.folder).num_hidden_layers
        values = Int8Values(inputs["values"], int8_scheme(method), family, blocks, kept, params.weights_only)
    plans = _plans(params, base, graph, kept, donor if values is None else values)
    changed = rewrite(graph, base.linears, plans, params.session.accuracy_level)
    folded = None
    if values is not None:
        folded = values.folded(checkpoint.folder)
    elif donor is not None:
        folded = folded_by_artifact(donor, SafetensorsReader(checkpoint.folder), family)
    if folded is not None:
        changed |= fold_into(graph, base.linears, plans, folded)
    return plans, changed


def _plans(
    params: OnnxAssembleParams,
    base: BaseGraph,
    graph: GraphFile,
    kept: frozenset[str],
    given: WeightReader | Int8Values | None,
) -> dict[str, Planned]:
    """Name of a constant → what its product becomes."""
    latest = Latest()
    bits = 4 if params.scheme == "w4-block" else 8
    by_block = partial(rounded_by_block, graph=graph, bits=bits, block_size=params.block_size, latest=latest)
    planned: dict[str, Planned] = {}
    for linear in base.linears:
        if params.scheme in DTYPES or linear.unit in kept:
            continue
        named = {part.linear for part in linear.parts}
        if isinstance(given, Int8Values):
            if named <= given.linears:
                planned[linear.weight] = given_int8(linear, given, latest)
        elif isinstance(given, CodesReader):
            if named <= given.quantized:
                planned[linear.weight] = given_codes(linear, given, latest)
        elif params.scheme == "w8":
            planned[linear.weight] = rounded_per_channel(linear, graph, latest)
        else:
            _require_blocks(linear, params.block_size)
            planned[linear.weight] = by_block(linear)
    return planned


def _require_blocks(linear: GraphLinear, block_size: int) -> None:
    if linear.inputs % block_size:
        raise QuantizationError(
            f"has {linear.inputs} input channels, which blocks of {block_size} do not divide",
            where=linear.parts[0].linear,
            hint="Choose another block_size, or name its unit in `keep`.",
        )


def _write_dynamic(base: BaseGraph, kept: frozenset[str], folder: Path, work: Path) -> dict[str, None]:
    """Let ONNX Runtime quantize; the constants it did, without a plan of ours."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    spared = [linear for linear in base.linears if linear.unit in kept]
    try:
        quantize_dynamically(base.folder, spared, folder, work)
    except Exception as cause:
        if of_storage(cause) is not None:
            raise
        words = " ".join(str(cause).split())
        raise ArtifactError(
            f"onnxruntime's quantize_dynamic failed: {words}", where=str(base.folder)
        ) from cause
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if not (folder / DATA_FILE).exists():
        raise ArtifactError(f"onnxruntime's quantize_dynamic left no {DATA_FILE}", where=str(folder))
    return {linear.weight: None for linear in base.linears if linear.unit not in kept}


def _expectation(
    params: OnnxAssembleParams, base: BaseGraph, planned: Mapping[str, Planned | None]
) -> Expectation:
    units: dict[str, ExpectedUnit] = {}
    for linear in base.linears:
        plan = planned.get(linear.weight)
        floating = len(plan.floating_channels) if isinstance(plan, Int8Plan) else 0
        kept = linear.weight not in planned
        before = units.get(linear.unit)
        whole = isinstance(plan, Int8Plan) and plan.input is None and params.scheme == "w8a8"
        units[linear.unit] = ExpectedUnit(
            computes="float" if kept else "weights-int8" if whole else COMPUTES[params.scheme],
            products=(*(before.products if before else ()), linear.stem),
            floating_channels=floating,
            elements=linear.elements + (before.elements if before else 0),
            floating_elements=(linear.elements if kept else floating * linear.outputs)
            + (before.floating_elements if before else 0),
        )
    return Expectation(scheme=params.scheme, units=units)


def _facts(params: OnnxAssembleParams, base: BaseGraph, expectation: Expectation) -> dict[str, Any]:
    by_block = params.scheme in ("w8-block", "w4-block")
    stored = {"w4-block": "int4"}.get(params.scheme, "int8")
    return {
        "name": params.name,
        "format": "onnx",
        "scheme": params.scheme,
        **({"block_size": params.block_size} if by_block else {}),
        "precision": base.precision,
        "builder": base.builder,
        "provider": params.session.provider,
        "session_options": params.session.entries,
        "float_share": expectation.float_share,
        **({"weights_only": list(params.weights_only)} if params.weights_only else {}),
        "precisions": {
            unit: DTYPES[base.precision] if expected.computes == "float" else stored
            for unit, expected in expectation.units.items()
        },
    }
