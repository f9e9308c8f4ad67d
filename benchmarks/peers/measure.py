"""Which tool runs which method, each in a process of its own, one after another."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quantflow.errors import QuantFlowError
from quantflow.formats.assembly import ARTIFACT_FOLDER
from quantflow.formats.read import open_artifact
from quantflow.model.weights import SINGLE_FILE
from quantflow.pipeline.digest import file_digest
from quantflow.source.checkpoint import load_checkpoint

from .judge import Judge, Judged
from .processes import DID_NOT_FINISH, NotFinished, Taken, load_outcome, run, save_outcome
from .read_back import PeerReader
from .texts import CALIBRATION_LISTS

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
ENVIRONMENTS = "tests.interop.environments"
"""The module that makes the environments of other programs."""
OURS = "quantflow"
BOTH = "both"
"""QuantFlow's row of two artifacts from one calibration; what it took is that of the two together."""
OUTCOME_FILE = "outcome.json"
"""In the folder of a run that ended: what it took. Runs that failed are tried again."""


@dataclass(frozen=True)
class Tool:
    """A tool and what is measured of it.

    Attributes:
        environment: Of its own, by name; empty for QuantFlow, which runs in the one that runs this.
        runs: Name of the row → what its worker is asked for, one or several methods.
    """

    environment: str
    runs: Mapping[str, tuple[str, ...]]


SINGLES = ("awq", "gptq", "gptq_refined", "gptq_ordered", "gptq_asymmetric", "rtn", "rtn_asymmetric")
"""QuantFlow's methods; those that peers are compared with have no refinement after them."""

TOOLS: Mapping[str, Tool] = {
    OURS: Tool(
        "",
        {
            **{name: (name,) for name in SINGLES},
            BOTH: ("awq", "gptq"),
        },
    ),
    "llmcompressor": Tool("llmcompressor", {name: (name,) for name in ("gptq", "gptq_asymmetric", "awq")}),
    "gptqmodel": Tool("interop-gptqmodel", {name: (name,) for name in ("gptq", "awq")}),
    "autoround": Tool("autoround", {"autoround": ("autoround",)}),
}


@dataclass(frozen=True)
class Conditions:
    """What is the same for every tool.

    Attributes:
        source: Output of QuantFlow's source stage: the model.
        data: Output folder of `texts.prepare`: the calibration tokens.
        folder: Where artifacts and logs go.
        threads: Threads that each may compute with.
        limit: Processor seconds, of each thread, after which one is stopped.
        peer_dtype: What peers load the model in.
    """

    source: Path
    data: Path
    folder: Path
    threads: int
    limit: float
    peer_dtype: str


@dataclass(frozen=True)
class Row:
    """One artifact of one tool.

    Attributes:
        tool: Its tool.
        method: Name of the row.
        artifact: Its folder; absent where the tool did not finish.
        outcome: What it took, or why there is nothing.
        quality: How it does, by text; empty until judged.
    """

    tool: str
    method: str
    artifact: Path
    outcome: Taken | NotFinished
    quality: Mapping[str, Judged]

    def judged_by(self, judge: Judge) -> "Row":
        """The row with its quality; one that cannot be read back counts as failed."""
        if isinstance(self.outcome, NotFinished):
            return self
        print(f"judging {self.tool} {self.method} …", flush=True)
        try:
            weights = file_digest(self.artifact / SINGLE_FILE)
            reader = open_artifact(self.artifact) if self.tool == OURS else PeerReader(self.artifact)
            return replace(self, quality=judge.judge(reader, weights))
        except QuantFlowError as error:
            return replace(self, outcome=NotFinished("failed", f"cannot be read back: {error}"))


def measure(tools: Sequence[str], conditions: Conditions) -> list[Row]:
    """Run every method of the tools named, one at a time."""
    pythons = {name: _python(TOOLS[name].environment) for name in tools}
    (conditions.folder / "logs").mkdir(exist_ok=True)
    return [
        row
        for name in tools
        for run_name, methods in TOOLS[name].runs.items()
        for row in _run(name, pythons[name], run_name, methods, conditions)
    ]


def _python(environment: str) -> str | NotFinished:
    """The Python of a tool's environment, which is made if it is not there."""
    if not environment:
        return sys.executable
    print(f"environment {environment}, which takes minutes to make on its first use …", flush=True)
    command = [sys.executable, "-m", ENVIRONMENTS, environment]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode:
        return NotFinished("failed", f"its environment cannot be made: {done.stderr.strip()[-500:]}")
    return done.stdout.split()[-1]


def _run(
    tool: str, python: str | NotFinished, name: str, methods: tuple[str, ...], conditions: Conditions
) -> Iterator[Row]:
    output = conditions.folder / tool / name
    kept = output / OUTCOME_FILE
    if kept.is_file():
        outcome: Taken | NotFinished = load_outcome(kept)
        print(f"{tool} {name}, kept from before: {outcome}", flush=True)
    elif isinstance(python, NotFinished):
        outcome = python
    else:
        print(f"running {tool} {name} …", flush=True)
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        command = [python, str(HERE / f"run_{tool}.py"), *_given(tool, conditions), str(output), *methods]
        log = conditions.folder / "logs" / f"{tool}-{name}.log"
        outcome = run(command, log, conditions.limit * conditions.threads, _environment(tool, conditions))
        print(f"  {outcome}", flush=True)
        if isinstance(outcome, Taken) or outcome.status == DID_NOT_FINISH:
            save_outcome(kept, outcome)
    for method in methods:
        artifact = output / method
        row = name if len(methods) == 1 else f"{name}_{method}"
        yield Row(tool, row, artifact / ARTIFACT_FOLDER if tool == OURS else artifact, outcome, {})


def _given(tool: str, conditions: Conditions) -> list[str]:
    if tool == OURS:
        return [str(conditions.source), str(conditions.data)]
    checkpoint = load_checkpoint(conditions.source).folder
    return [str(checkpoint), str(conditions.data / CALIBRATION_LISTS), conditions.peer_dtype]


def _environment(tool: str, conditions: Conditions) -> dict[str, str]:
    threads = str(conditions.threads)
    environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1"}
    if tool == OURS:
        environment["PYTHONPATH"] = str(CHECKOUT)  # this checkout's code, whatever is installed
    return environment
