"""From a recipe's `data` section to the parameters of the data stage."""

from typing import Literal

from quantflow.data.params import DataParams, FieldParams, ReadParams, default_slice
from quantflow.recipe.data import Data, FieldNames, RoleNames

_DELIMITERS: dict[str, Literal["auto", ",", ";", "\t", "|"]] = {
    "auto": "auto",
    "comma": ",",
    "semicolon": ";",
    "tab": "\t",
    "pipe": "|",
}


def data_params(data: Data) -> DataParams:
    """Resolve the section, its files expanded already."""
    reading = ReadParams(
        format=data.format,
        encoding=data.encoding,
        delimiter=_DELIMITERS[data.delimiter],
        documents=data.documents,
        fields=_fields(data.fields),
        roles=_roles(data.roles),
        invalid=data.invalid,
    )
    evaluation = data.evaluation
    return DataParams(
        files=data.files,
        slices=tuple(default_slice(file, reading) for file in data.files),
        reading=reading,
        calibration_windows=data.calibration.windows,
        calibration_length=data.calibration.length,
        evaluation_windows=evaluation.windows,
        evaluation_length=evaluation.length,
        evaluation_stride=evaluation.length if evaluation.stride is None else evaluation.stride,
        evaluation_bos=evaluation.bos,
        calibration_share=data.split.calibration,
        selection_share=data.split.selection,
        evaluation_share=data.split.evaluation,
        max_overlap=data.max_overlap,
        seed=data.seed,
    )


_NAMING: tuple[Literal["slice", "id"], ...] = ("slice", "id")


def _fields(names: FieldNames) -> FieldParams:
    # One of the two given means that rows are that; none or both, that each row says which it is.
    either = (names.text is None) == (names.messages is None)
    return FieldParams(
        text=names.text or (("text",) if either else ()),
        messages=names.messages or ("messages" if either else ""),
        role=names.role,
        content=names.content,
        tools=names.tools or "tools",
        slice=names.slice or "slice",
        id=names.id or "id",
        required=tuple(name for name in _NAMING if getattr(names, name) is not None),
    )


def _roles(names: RoleNames) -> dict[str, str]:
    return {own: role for role in RoleNames.model_fields for own in getattr(names, role)}
