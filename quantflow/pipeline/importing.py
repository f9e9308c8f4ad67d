"""The stage that stands in for making an artifact where somebody else has made it."""

from pathlib import Path

from quantflow.errors import RecipeError
from quantflow.formats.onnx.params import GRAPH_FILE, OnnxImportParams
from quantflow.formats.params import ImportParams
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.onnx_runtime import graph_params
from quantflow.pipeline.stage import Stage
from quantflow.recipe.artifacts import Artifact, ImportArtifact
from quantflow.recipe.onnx import OnnxArtifact
from quantflow.recipe.schema import Recipe
from quantflow.source.identify import WEIGHT_PATTERNS, checkpoint_files

VOCABULARIES = (
    *("tokenizer.json", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model"),
    *("vocab.json", "vocab.txt"),
)
"""Files of which a tokenizer has one at least."""


def runs_as_graph(recipe: Recipe, artifact: Artifact) -> bool:
    """Whether an artifact is a graph for ONNX Runtime: made as one here, or imported as one."""
    if isinstance(artifact, ImportArtifact):
        return has_graph(imported_folder(recipe, artifact.path))
    return isinstance(artifact, OnnxArtifact)


def imported_folder(recipe: Recipe, path: str) -> Path:
    """Where somebody else's artifact lies; paths are relative to the recipe."""
    return (recipe.base / Path(path).expanduser()).resolve()


def has_graph(folder: Path) -> bool:
    """Whether a folder holds an ONNX graph, and no safetensors that it could be beside."""
    if not folder.is_dir() or any(path for pattern in WEIGHT_PATTERNS for path in folder.glob(pattern)):
        return False
    return any(folder.glob("*.onnx"))


def import_stage(
    recipe: Recipe, key: str, path: str, name: str, digests: DigestCache, machine: Machine, *, stage: str
) -> Stage:
    """The assemble stage of an artifact that is there already.

    Args:
        recipe: The recipe; the path is relative to it.
        key: The recipe's key that names it.
        path: The artifact's folder.
        name: Name of the artifact.
        digests: Hashes of the files that the recipe names.
        machine: Where it will run.
        stage: Name of the stage.

    Raises:
        RecipeError: There is no such folder, nothing in it that makes a model, or no tokenizer where
            something is asked that needs one.
        StoreError: A file of it cannot be read.
        RuntimeUnavailableError: It is a graph, and ONNX Runtime is not installed.
    """
    folder = imported_folder(recipe, path)
    graph = has_graph(folder)
    found = _graph_files(folder, key) if graph else checkpoint_files(folder) if folder.is_dir() else []
    files = {file.name: str(file) for file in found}
    if not files:
        raise RecipeError(
            f"there is no artifact in {folder}",
            where=key,
            hint="It has to be a folder with config.json and safetensors, or with model.onnx; paths are "
            "relative to the recipe.",
        )
    _require_tokenizer(recipe, key, folder)
    if graph:
        session = graph_params(recipe, machine).session
        params: ImportParams = OnnxImportParams(name=name, folder=str(folder), files=files, session=session)
    else:
        params = ImportParams(name=name, folder=str(folder), files=files)
    return Stage(
        name=stage,
        function=f"quantflow.formats.{'onnx.' if graph else ''}imported:run",
        params=params,
        inputs={"source": "source"},
        external={file: digests.digest(Path(file)) for file in files.values()},
        artifact=name,
    )


def _graph_files(folder: Path, key: str) -> list[Path]:
    """All files of a graph's folder: its tensors may lie in a file of any name."""
    graphs = sorted(path.name for path in folder.glob("*.onnx"))
    if GRAPH_FILE not in graphs:
        raise RecipeError(
            f"there is no {GRAPH_FILE} in {folder}, but {', '.join(graphs)}",
            where=key,
            hint=f"A decoder that is one graph is read, under that name: the others of a pipeline are not. "
            f"Rename it to {GRAPH_FILE}, genai_config.json included.",
        )
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _require_tokenizer(recipe: Recipe, key: str, folder: Path) -> None:
    needs = [
        name
        for name, asked in (("gate.tasks", recipe.gate.tasks), ("gate.generation", recipe.gate.generation))
        if asked
    ]
    if needs and not any((folder / name).is_file() for name in VOCABULARIES):
        raise RecipeError(
            f"there is no tokenizer in {folder}, and {' and '.join(needs)} run an artifact with its own",
            where=key,
            hint="Put the tokenizer beside it that it is served with; without these criteria it is judged on "
            "the baseline's tokens.",
        )
