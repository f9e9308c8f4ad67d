"""What a graph's units are to run as and what became of them: read without ONNX."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from quantflow.formats.onnx.params import OnnxScheme

EXPECTATION_FILE, CENSUS_FILE = "expectation.json", "census.json"
Computes = Literal["int8", "weights-int8", "weights-int4", "float"]
COMPUTES: Mapping[OnnxScheme, Computes] = {
    "fp32": "float",
    "fp16": "float",
    "w8a8": "int8",
    "dynamic": "int8",
    "w8": "weights-int8",
    "w8-block": "weights-int8",
    "w4-block": "weights-int4",
}


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ExpectedUnit(_Record):
    """What a unit is stored as.

    Attributes:
        computes: What its products are to compute in; `float` where it stays as it is.
        products: Stems of its constants' names, one for each product, e.g.
            `model.layers.0.attn.qkv_proj.MatMul`.
        floating_channels: Input channels that are computed in floating point.
        elements: Weights that it holds.
        floating_elements: Those of them in floating point.
    """

    computes: Computes
    products: tuple[str, ...]
    floating_channels: int
    elements: int
    floating_elements: int


class Expectation(_Record):
    """What an artifact's units are stored as, known from how it was made.

    Attributes:
        scheme: Its scheme.
        units: Unit → what it is stored as.
        unknown: Products of somebody else's graph of which it is not known how their weights are stored.
    """

    scheme: OnnxScheme
    units: Mapping[str, ExpectedUnit]
    unknown: tuple[str, ...] = ()

    @property
    def float_share(self) -> float:
        """Floating weights of linear layers over all of them, the head included, the embedding not."""
        floating = sum(unit.floating_elements for unit in self.units.values())
        return floating / sum(unit.elements for unit in self.units.values())

    @property
    def computes(self) -> Computes:
        """What the scheme is to compute in, units that stay in floating point aside."""
        return COMPUTES[self.scheme]


class UnitCensus(_Record):
    """What became of a unit.

    Attributes:
        expected: What it is to compute in.
        found: What its products compute in; of several the one furthest from INT8.
        operators: Operator that runs → number of products.
        float_parts: Products of its floating channels.
    """

    expected: Computes
    found: Computes
    operators: Mapping[str, int]
    float_parts: int = 0

    @property
    def fell_back(self) -> bool:
        """Whether it does not run as it is stored."""
        return self.found != self.expected


class Census(_Record):
    """What really runs.

    Attributes:
        provider: Execution provider.
        units: Unit → what became of it.
        operators: All operators of the optimised graph → how many.
        float_share: Floating weights of linear layers over all of them.
        unknown: Products of which it is not known how their weights are stored.
    """

    provider: str
    units: Mapping[str, UnitCensus]
    operators: Mapping[str, int]
    float_share: float
    unknown: tuple[str, ...] = ()

    @property
    def fallen_back(self) -> tuple[str, ...]:
        """Units that do not run as they are stored."""
        return tuple(unit for unit, census in self.units.items() if census.fell_back)


def save_expectation(output: Path, expectation: Expectation) -> None:
    """Write expectation.json."""
    _save(output / EXPECTATION_FILE, expectation)


def load_expectation(stage_output: Path) -> Expectation:
    """Read what the assemble stage wrote."""
    return Expectation.model_validate_json((stage_output / EXPECTATION_FILE).read_text(encoding="utf-8"))


def save_census(output: Path, census: Census) -> None:
    """Write census.json."""
    _save(output / CENSUS_FILE, census)


def has_census(stage_output: Path) -> bool:
    """Whether a stage that measures took one."""
    return (stage_output / CENSUS_FILE).is_file()


def load_census(stage_output: Path) -> Census:
    """Read what the measure stage wrote."""
    return Census.model_validate_json((stage_output / CENSUS_FILE).read_text(encoding="utf-8"))


def _save(path: Path, record: _Record) -> None:
    text = json.dumps(record.model_dump(mode="json"), indent=1)
    path.write_text(text + "\n", encoding="utf-8")
