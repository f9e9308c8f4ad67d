"""The assemble stage: the artifact of a recipe becomes a directory that a runtime loads."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.formats.assembly import (
    WRITTEN_FOLDER,
    load_assembly,
    pass_on,
)
from quantflow.formats.making import Ingredients, entries_of, write_artifact
from quantflow.formats.params import AssembleParams
from quantflow.formats.plan import (
    Entry,
)
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.sensitivity.kept import ASSIGNMENT, units_kept


def run(params: AssembleParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Write the artifact to `artifact/` and what it came to, `assemble.json`.

    Args:
        params: Name, format, scheme and kept units.
        inputs: Finished outputs of `source` and `codes`; of `assignment` where kept units were chosen.
        output: Where to write.
        reporter: Receives progress and events.

    Raises:
        QuantizationError: If codes do not fit the source or the format, or a value does not fit the dtype it
            is to be stored in.
        SourceError: If the source cannot be read.
        StoreError: If a block's codes cannot be read.
    """
    model = Ingredients.of(inputs)
    kept = units_kept(inputs, params.keep, model.family, model.blocks)
    entries = entries_of(params, model, kept)
    _report_conversions(entries, model.reader, model.checkpoint.half_dtype, reporter)
    written = inputs[ASSIGNMENT] / WRITTEN_FOLDER if params.written else None
    if written is not None and load_assembly(written).kept_units == tuple(sorted(kept)):
        pass_on(written, output)
    else:
        write_artifact(params, model, kept, output, reporter)


def _report_conversions(
    entries: tuple[Entry, ...], reader: SafetensorsReader, half_name: str, reporter: Reporter
) -> None:
    converted = [
        entry.source
        for entry in entries
        if entry.linear is None and entry.outputs[0].dtype != reader.spec(entry.source).dtype
    ]
    if converted:
        reporter.event(
            f"stored-as-{half_name}",
            f"{len(converted)} tensors that are not quantized are stored in {half_name}: runtimes read "
            "quantized models in 16-bit dtypes only.",
            tensors=len(converted),
            dtype=half_name,
        )
