"""How artifacts of a format are tried: written with some units kept, and measured as they are measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from quantflow.data.windows import Windows
from quantflow.formats.assembly import ARTIFACT_FOLDER, Assembly, load_assembly
from quantflow.formats.making import Ingredients, write_artifact
from quantflow.formats.onnx.params import OnnxAssembleParams
from quantflow.formats.params import AssembleParams
from quantflow.measure.beside import Beside, samples_beside
from quantflow.measure.measurement import RuntimeInfo, Samples
from quantflow.model.build import family_at
from quantflow.model.config import load_config
from quantflow.model.families import Family
from quantflow.model.units import HEAD, kept_of_all, kept_units
from quantflow.pipeline.events import Reporter
from quantflow.sensitivity.choosing import Choosing
from quantflow.sensitivity.kept import Precisions
from quantflow.source.checkpoint import load_checkpoint

GRAPH_DTYPE = "float32"
"""What a graph has units in that stay as they are: integer arithmetic is for processors."""


class Maker(Protocol):
    """Writes and measures candidates of one artifact.

    Attributes:
        family: The model's family.
        blocks: How many blocks it has.
        source: What units that stay as they are are stored in.
        shared: Units whose weights are in the artifact anyway if they stay as they are.
    """

    family: Family
    blocks: int
    source: str
    shared: frozenset[str]

    def kept(self) -> frozenset[str]:
        """Units that the recipe keeps.

        Raises:
            RecipeError: A pattern means no unit, or all are kept.
        """

    def write(self, precisions: Precisions, output: Path, reporter: Reporter) -> Assembly:
        """Write the artifact under an assignment into an empty folder, as its assemble stage does."""

    def measure(self, written: Path, reporter: Reporter, what: str) -> tuple[Samples, RuntimeInfo]:
        """Measure what was written beside the lossless model."""


@dataclass
class CodesMaker:
    """Of the layouts of codes that are read back into torch.

    Attributes:
        family: As in `Maker`.
        blocks: As in `Maker`.
        source: As in `Maker`.
        shared: None: the head is no unit here.
        params: How it is written.
        model: What it is made of.
        beside: The lossless model on the selection windows.
    """

    family: Family
    blocks: int
    source: str
    params: AssembleParams
    model: Ingredients
    beside: Beside
    shared: frozenset[str] = frozenset()

    def kept(self) -> frozenset[str]:
        """As in `Maker`."""
        return kept_units(self.params.keep, self.family, self.blocks)

    def write(self, precisions: Precisions, output: Path, reporter: Reporter) -> Assembly:
        """As in `Maker`."""
        return write_artifact(self.params, self.model, precisions.kept, output, reporter)

    def measure(self, written: Path, reporter: Reporter, what: str) -> tuple[Samples, RuntimeInfo]:
        """As in `Maker`."""
        return samples_beside(self.beside, written / ARTIFACT_FOLDER, reporter, what)


@dataclass
class GraphMaker:
    """Of graphs that are run in ONNX Runtime.

    Attributes:
        family: As in `Maker`.
        blocks: As in `Maker`.
        source: As in `Maker`.
        shared: As in `Maker`.
        choosing: How it is written and measured.
        params: How it is written.
        inputs: Outputs of `source`, `base` and `codes`, the stage that made the INT8 values.
        windows: The selection windows.
    """

    family: Family
    blocks: int
    source: str
    shared: frozenset[str]
    choosing: Choosing
    params: OnnxAssembleParams
    inputs: Mapping[str, Path]
    windows: Windows

    def kept(self) -> frozenset[str]:
        """As in `Maker`; the head is a unit like any other."""
        return kept_of_all(self.params.keep, self.family, self.blocks)

    def write(self, precisions: Precisions, output: Path, reporter: Reporter) -> Assembly:
        """As in `Maker`; a rung down from W8A8 the codes are the same, and inputs stay in floating point."""
        from quantflow.formats.onnx import assemble

        middle = frozenset[str]().union(*map(precisions.having, self.choosing.ladder[1:]))
        changes = {"keep": tuple(sorted(precisions.kept)), "weights_only": tuple(sorted(middle))}
        params = self.params.model_copy(update=changes)
        inputs = {role: self.inputs[role] for role in ("source", "base")}
        assemble.run(params, {**inputs, "values": self.inputs["codes"]}, output, reporter)
        return load_assembly(output)

    def measure(self, written: Path, reporter: Reporter, what: str) -> tuple[Samples, RuntimeInfo]:
        """As in `Maker`."""
        from quantflow.measure.onnx import graph_samples

        assert self.choosing.graph is not None
        folder = written / ARTIFACT_FOLDER
        return graph_samples(self.choosing.graph, self.windows, folder, self.inputs["base"], reporter)


def shared_units(config: Any) -> frozenset[str]:
    """Units whose weights a graph has anyway if they stay as they are: a head that is the embedding, too."""
    return frozenset({HEAD} if config.tie_word_embeddings else ())


def maker_of(choosing: Choosing, inputs: Mapping[str, Path], windows: Windows) -> Maker:
    """The maker of an artifact.

    Args:
        choosing: The artifact.
        inputs: Finished outputs of `source`, `codes` and, on the selection documents, `baseline`; of `base`
            for a graph.
        windows: The selection windows.
    """
    params = choosing.assemble
    if isinstance(params, OnnxAssembleParams):
        checkpoint = load_checkpoint(inputs["source"])
        family = family_at(checkpoint.folder, checkpoint.model_type)
        config = load_config(checkpoint.folder)
        made_of = {role: inputs[role] for role in ("source", "base", "codes")}
        return GraphMaker(
            family=family,
            blocks=config.num_hidden_layers,
            source=GRAPH_DTYPE,
            shared=shared_units(config),
            choosing=choosing,
            params=params,
            inputs=made_of,
            windows=windows,
        )
    model = Ingredients.of(inputs)
    beside = Beside(
        source=model.checkpoint.folder,
        baseline=inputs["baseline"],
        windows=windows,
        device=choosing.device,
        batch_tokens=choosing.batch_tokens,
    )
    return CodesMaker(model.family, model.blocks, model.checkpoint.half_dtype, params, model, beside)
