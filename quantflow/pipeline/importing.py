"""The stage that stands in for making an artifact where somebody else has made it."""

from pathlib import Path

from quantflow.errors import RecipeError
from quantflow.formats.params import ImportParams
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.stage import Stage
from quantflow.recipe.schema import Recipe
from quantflow.source.identify import checkpoint_files


def import_stage(
    recipe: Recipe, key: str, path: str, name: str, digests: DigestCache, *, stage: str
) -> Stage:
    """The assemble stage of an artifact that is there already.

    Args:
        recipe: The recipe; the path is relative to it.
        key: The recipe's key that names it.
        path: The artifact's folder.
        name: Name of the artifact.
        digests: Hashes of the files that the recipe names.
        stage: Name of the stage.

    Raises:
        RecipeError: There is no such folder, or nothing in it that makes a model.
        StoreError: A file of it cannot be read.
    """
    folder = (recipe.base / Path(path).expanduser()).resolve()
    files = {file.name: str(file) for file in checkpoint_files(folder)} if folder.is_dir() else {}
    if not files:
        raise RecipeError(
            f"there is no artifact in {folder}",
            where=key,
            hint="It has to be a folder with config.json and safetensors; paths are relative to the recipe.",
        )
    return Stage(
        name=stage,
        function="quantflow.formats.imported:run",
        params=ImportParams(name=name, folder=str(folder), files=files),
        inputs={"source": "source"},
        external={file: digests.digest(Path(file)) for file in files.values()},
        artifact=name,
    )
