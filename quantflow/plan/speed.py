"""How fast this machine works: measured once, remembered in the workspace under the machine's name."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from quantflow.errors import QuantFlowError
from quantflow.hardware.processor import find_processor
from quantflow.pipeline.code import ROOT, code_identity
from quantflow.pipeline.usage import machine_name
from quantflow.plan.work import Kind, Work

PROGRAM = "quantflow.plan.calibration"
FILE = "speed.json"
MATMUL_WIDTHS: Mapping[str, tuple[int, ...]] = {"cpu": (64, 256, 1024), "cuda": (64, 256, 1024, 4096)}
"""Sizes of square products whose speed is measured; larger ones are no faster."""
# Seconds after which a machine is too busy, or torch too broken, to be measured.
PATIENCE = 300
# Programs that want a core, per core, from which on a measurement is not worth keeping.
BUSY = 1.5


class CalibrationError(QuantFlowError):
    """The machine's speed cannot be measured."""


class Speed(BaseModel):
    """Speed of a machine.

    Attributes:
        machine: Its name, see `machine_name`.
        code: Digest of the program that measured it.
        imports: Seconds to import torch and the models' code.
        rates: `matmul-<size>` → operations per second; kind of work → amount per second.
        busy: Whether other programs kept the machine busy, so that it is measured again next time.
    """

    model_config = ConfigDict(frozen=True)

    machine: str = ""
    code: str = ""
    imports: float
    rates: Mapping[str, float]
    busy: bool = False

    def seconds(self, work: Work) -> float:
        """Time that work takes on this machine left alone."""
        products = sum(amount / self._matmul_rate(width) for width, amount in work.matmuls.items())
        return products + sum(amount / self._rate(kind) for kind, amount in work.amounts.items())

    def parts(self, work: Work) -> dict[Kind | Literal["matmul"], float]:
        """The same by kind of work, for those who want to know why."""
        found: dict[Kind | Literal["matmul"], float] = {
            "matmul": sum(amount / self._matmul_rate(width) for width, amount in work.matmuls.items())
        }
        return found | {kind: amount / self._rate(kind) for kind, amount in work.amounts.items()}

    def _rate(self, kind: Kind) -> float:
        return 1.0 if kind == "second" else self.rates[kind]

    def _matmul_rate(self, width: int) -> float:
        """Operations per second of products whose smallest size is `width`; by logs between measured ones."""
        known = sorted(
            (int(n.removeprefix("matmul-")), r) for n, r in self.rates.items() if n.startswith("matmul-")
        )
        if width <= known[0][0]:
            return known[0][1]
        for (low, slow), (high, fast) in pairwise(known):
            if width <= high:
                part = math.log(width / low) / math.log(high / low)
                return math.exp((1 - part) * math.log(slow) + part * math.log(fast))
        return known[-1][1]


def find_speed(workspace: Path, device: str, on_measure: Callable[[], None]) -> Speed:
    """This machine's speed: as remembered, else measured now in a process of its own.

    Args:
        workspace: Where it is remembered; where that cannot be written it is measured every time.
        device: `cpu` or `cuda`.
        on_measure: Called before a measurement, which takes seconds.

    Raises:
        CalibrationError: It cannot be measured.
    """
    machine, code = machine_name(device), code_identity(PROGRAM).digest
    remembered = _remembered(workspace)
    known = remembered.get(machine)
    if known is not None and known.code == code and not known.busy:
        return known
    busy = machine_is_busy()
    if known is not None and known.code == code and busy:
        return known  # it would be no better now
    on_measure()
    measured = _measure(device, workspace)
    speed = measured.model_copy(update={"machine": machine, "code": code, "busy": busy})
    _remember(workspace, remembered | {machine: speed})
    return speed


def machine_is_busy() -> bool:
    """Whether other programs want this machine's cores."""
    try:
        return os.getloadavg()[0] > BUSY * find_processor().cores
    except OSError:
        return False


def _measure(device: str, workspace: Path) -> Speed:
    command = [sys.executable, "-P", "-m", PROGRAM, device, str(workspace)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=True, env=_environment()
        )
        return Speed.model_validate(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired as error:
        raise CalibrationError(f"measuring the machine's speed took over {PATIENCE} s") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise CalibrationError(
            f"the machine's speed could not be measured: {last}", hint="`quantflow doctor` may say more."
        ) from error
    except (IndexError, ValueError) as error:
        raise CalibrationError(f"the machine's speed came out as nonsense: {error}") from error


def _environment() -> Mapping[str, str]:
    """The user's own, in which this very package is the one that is found."""
    paths = [str(ROOT.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def _remembered(workspace: Path) -> dict[str, Speed]:
    try:
        stored = json.loads((workspace / FILE).read_text())
        return {machine: Speed.model_validate(speed) for machine, speed in stored.items()}
    except (OSError, ValueError, ValidationError, AttributeError):
        return {}


def _remember(workspace: Path, speeds: Mapping[str, Speed]) -> None:
    content = json.dumps({machine: speed.model_dump() for machine, speed in speeds.items()}, indent=1)
    temporary = workspace / f"{FILE}.{os.getpid()}"
    try:
        temporary.write_text(content)
        temporary.replace(workspace / FILE)
    except OSError:
        temporary.unlink(missing_ok=True)
