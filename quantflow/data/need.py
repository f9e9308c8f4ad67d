"""How much text the windows asked for can need; more of it is read, but not tokenized and not held."""

import math
from dataclasses import dataclass

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.data.params import DataParams

SPARE = 2
"""How many times what the shares say is needed is held: documents differ in length, near duplicates move
together, and windows are drawn from more than are asked for."""


@dataclass(frozen=True)
class Need:
    """How much has to be held so that every split gets the windows asked for.

    Attributes:
        tokens: For calibration windows.
        windows: Selection or evaluation windows, counted over all documents.
        documents: For the gate, which judges by documents.
    """

    tokens: int
    windows: int
    documents: int


def need_of(params: DataParams) -> Need:
    """What the recipe's windows, shares and gate need, spares included."""
    shares = [share for share in (params.selection_share, params.evaluation_share) if share > 0]
    tokens = params.calibration_windows * params.calibration_length / params.calibration_share
    return Need(
        tokens=math.ceil(SPARE * tokens),
        windows=math.ceil(SPARE * params.evaluation_windows / min(shares)),
        documents=math.ceil(SPARE * MIN_DOCUMENTS / params.evaluation_share),
    )
