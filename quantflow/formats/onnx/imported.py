"""The assemble stage of somebody else's graph: looked at where it lies, and tried for three tokens.

Nothing that comes with it is loaded beside the graph and its tensors: no library of operators, no settings of
a session.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from quantflow.errors import ArtifactError
from quantflow.formats.assembly import Assembly, ImportedScheme, save_assembly
from quantflow.formats.onnx.census_record import save_expectation
from quantflow.formats.onnx.graph_file import GraphFile
from quantflow.formats.onnx.graph_interface import MOST_NAMED, require_decoder, require_known_operators
from quantflow.formats.onnx.params import GENAI_CONFIG, GRAPH_FILE, OnnxImportParams
from quantflow.formats.onnx.products import Product, expectation_of, graph_products, unknown_products
from quantflow.pipeline.events import Reporter
from quantflow.runtime.ort import OnnxModel
from quantflow.source.checkpoint import load_checkpoint

CUSTOM_OPS = "custom_ops"
"""What keys of genai_config.json are called that name a library of operators."""
TRIED = (2, 1)
"""Tokens that a graph is tried with: a prompt, and one more over the cache."""
FLOATING = 16
"""Bits from which on all count as one width: nothing is quantized."""
NOT_SAID = ImportedScheme(method=None, bits=32, group_size=None, dtype=None)
"""Of a graph with weights that nothing is known of: the tightest margins hold."""


def run(params: OnnxImportParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Check that a graph can be run here, and write what it is: assemble.json and expectation.json.

    Args:
        params: Where it lies, and session options.
        inputs: Finished output of `source`, whose weights it is told from.
        output: Folder to write to.
        reporter: Receives events.

    Raises:
        ArtifactError: It is damaged, no decoder with the builder's names, needs a library of operators, or
            ONNX Runtime does not run it.
    """
    folder = Path(params.folder)
    graph = GraphFile(folder / GRAPH_FILE)
    require_known_operators(graph)
    require_decoder(graph, params.session.provider)
    _notice_library(params, folder, reporter)
    # What its operators lack is said by ONNX Runtime, before anything is read from them.
    sequel = OnnxModel(folder, params.session).start(sum(TRIED))
    for tokens in TRIED:
        sequel.logits(np.zeros(tokens, dtype=np.int64))
    products, unknown = graph_products(graph), unknown_products(graph)
    if not products:
        raise ArtifactError("multiplies with no weights: it is no language model", where=str(graph.path))
    reporter.event(
        "artifact-imported",
        f"{params.name} was not made here: how it was calibrated, and on what, is not known.",
        artifact=params.name,
        folder=folder.name,
    )
    if unknown:
        reporter.event(
            "products-not-known",
            f"{len(unknown)} products of {params.name} multiply by weights that are stored in a way which is "
            f"not known here, such as {unknown[0]}: the margins of what is not quantized hold, and its "
            "census is inconclusive.",
            artifact=params.name,
            products=list(unknown[:MOST_NAMED]),
            total=len(unknown),
        )
    save_expectation(output, expectation_of(products, unknown))
    sizes = {name: Path(path).stat().st_size for name, path in params.files.items()}
    save_assembly(
        output,
        Assembly(
            folder=folder,
            name=params.name,
            format="onnx",
            bytes=sum(sizes.values()),
            weight_bytes=graph.weight_bytes,
            source_weight_bytes=load_checkpoint(inputs["source"]).bytes,
            quantized_linears=sum(product.computes != "float" for product in products),
            kept_units=(),
            imported=NOT_SAID if unknown else imported_scheme(products),
        ),
    )


def imported_scheme(products: tuple[Product, ...]) -> ImportedScheme:
    """How most of a graph's weights are stored: the width of most, and what is most of that width."""
    widths: dict[int, int] = {}
    kinds: dict[tuple[str, int, int | None], int] = {}
    for product in products:
        kind = (product.computes, product.bits, product.block)
        width = min(product.bits, FLOATING)
        widths[width] = widths.get(width, 0) + product.elements
        kinds[kind] = kinds.get(kind, 0) + product.elements
    most = max(widths, key=lambda width: (widths[width], width))
    of_width = [kind for kind in kinds if min(kind[1], FLOATING) == most]
    computes, bits, block = max(of_width, key=lambda kind: kinds[kind])
    if computes == "float":
        return ImportedScheme(method=None, bits=bits, group_size=None, dtype=f"float{bits}")
    return ImportedScheme(method=computes, bits=bits, group_size=block or -1, dtype=None)


def _notice_library(params: OnnxImportParams, folder: Path, reporter: Reporter) -> None:
    """Say that a library which the settings name is left alone: code of others is not run here."""
    try:
        text = (folder / GENAI_CONFIG).read_text(encoding="utf-8")
        named = CUSTOM_OPS in json.dumps(json.loads(text))
    except (OSError, ValueError, RecursionError):
        return  # what is needed of it is looked for, and missed by name, where it is needed
    if named:
        reporter.event(
            "library-not-loaded",
            f"The settings of {params.name} name a library of operators, which is not loaded; its graph does "
            "not need it.",
            artifact=params.name,
        )
