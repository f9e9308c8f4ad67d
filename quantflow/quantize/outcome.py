"""What the stages that quantize say of themselves, for reports: read without torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

QUANTIZE_FILE = "quantize.json"
REFINE_FILE = "refine.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class QuantizeRecord(_Record):
    """What quantizing took and found.

    Attributes:
        calibration_tokens: Tokens that passed the blocks; 0 where nothing needed them.
        forwards: Whole forwards over these tokens, as the share of the arithmetic that was done.
        bytes_read: Bytes of weights read.
        weight_bytes: Bytes of weights there are.
        searches: Id of a scheme → unit → exponent and relative loss of its scale search.
    """

    calibration_tokens: int
    forwards: float
    bytes_read: int
    weight_bytes: int
    searches: Mapping[str, Mapping[str, Mapping[str, float]]]


class RefineRecord(_Record):
    """Which codes of a GPTQ artifact were taken, and by how much they are better.

    Attributes:
        taken: `refined` or `plain`.
        kl_plain: Mean KL from the lossless model on the selection windows, nats per token, with the codes as
            they came; None where there are no selection windows.
        kl_refined: The same with the refined codes.
        positions: Tokens that this was measured on.
        forwards: Whole forwards over the calibration tokens.
    """

    taken: Literal["refined", "plain"]
    kl_plain: float | None
    kl_refined: float | None
    positions: int
    forwards: float


def save_quantize_record(output: Path, record: QuantizeRecord) -> None:
    """Write quantize.json."""
    _save(output / QUANTIZE_FILE, record)


def load_quantize_record(stage_output: Path) -> QuantizeRecord:
    """Read what the quantize stage wrote."""
    return QuantizeRecord.model_validate_json((stage_output / QUANTIZE_FILE).read_text(encoding="utf-8"))


def save_refine_record(output: Path, record: RefineRecord) -> None:
    """Write refine.json."""
    _save(output / REFINE_FILE, record)


def load_refine_record(stage_output: Path) -> RefineRecord:
    """Read what the refine stage wrote."""
    return RefineRecord.model_validate_json((stage_output / REFINE_FILE).read_text(encoding="utf-8"))


def _save(path: Path, record: _Record) -> None:
    text = json.dumps(record.model_dump(mode="json"), indent=1, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")
