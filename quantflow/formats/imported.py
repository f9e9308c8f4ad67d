"""The assemble stage of somebody else's artifact: it is looked at where it lies, and read as it is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantflow.errors import ArtifactError
from quantflow.formats.assembly import Assembly, ImportedScheme, save_assembly
from quantflow.formats.folder import CONFIG_FILE
from quantflow.formats.params import ImportParams
from quantflow.formats.read import open_artifact
from quantflow.pipeline.events import Reporter

PLAIN = {"float16": 16, "bfloat16": 16, "float32": 32}


def run(params: ImportParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Check that an artifact can be read and write what it is, `assemble.json`.

    Args:
        params: Where it lies.
        inputs: Finished output of `source`; what cannot be judged is not imported.
        output: Folder to write to.
        reporter: Receives events.

    Raises:
        ArtifactError: It is of a format that is not read, or damaged.
    """
    folder = Path(params.folder)
    open_artifact(folder)
    scheme = imported_scheme(folder)
    reporter.event(
        "artifact-imported",
        f"{params.name} was not made here: how it was calibrated, and on what, is not known.",
        artifact=params.name,
        folder=folder.name,
    )
    sizes = {name: Path(path).stat().st_size for name, path in params.files.items()}
    save_assembly(
        output,
        Assembly(
            folder=folder,
            name=params.name,
            format=scheme.method or "hf",
            bytes=sum(sizes.values()),
            weight_bytes=sum(size for name, size in sizes.items() if name.endswith(".safetensors")),
            source_weight_bytes=0,
            quantized_linears=0,
            kept_units=(),
            imported=scheme,
        ),
    )


def imported_scheme(folder: Path) -> ImportedScheme:
    """What config.json says of how weights are quantized, as far as it says it."""
    config: dict[str, Any] = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    settings = config.get("quantization_config")
    if not isinstance(settings, dict):
        dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        return ImportedScheme(method=None, bits=PLAIN.get(dtype, 32), group_size=None, dtype=dtype)
    groups = settings.get("config_groups")
    if isinstance(groups, dict):
        # Which group most weights are in is not said: of several the one with the most bits counts, whose
        # margins are the tightest.
        weights = max((group["weights"] for group in groups.values()), key=lambda one: int(one["num_bits"]))
        group = weights.get("group_size") if weights.get("strategy") == "group" else -1
        return ImportedScheme("compressed-tensors", int(weights["num_bits"]), group, None)
    bits, group = settings.get("bits"), settings.get("group_size")
    if not isinstance(bits, int):
        raise ArtifactError("quantization_config does not say how many bits", where=str(folder / CONFIG_FILE))
    return ImportedScheme(str(settings["quant_method"]), bits, group, None)
