"""The stage that gives what both sides generated to scorers of the user's own."""

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from quantflow.errors import TaskError
from quantflow.measure.generation_record import GenerationRecord, load_generation
from quantflow.measure.params import CustomParams, CustomScore
from quantflow.pipeline.events import Reporter

CUSTOM_FILE = "custom.json"
# Lines of what a scorer wrote to standard error that its failure is explained with.
LAST_LINES = 5
_BRIDGE = (
    "import importlib.util, json, sys\n"
    "path, name = sys.argv[1:3]\n"
    "spec = importlib.util.spec_from_file_location('scorer', path)\n"
    "module = importlib.util.module_from_spec(spec)\n"
    "answers, sys.stdout = sys.stdout, sys.stderr\n"
    "spec.loader.exec_module(module)\n"
    "for score in getattr(module, name)([json.loads(line) for line in sys.stdin]):\n"
    "    before, after = (score['baseline'], score['artifact']) if isinstance(score, dict) else score\n"
    "    print(json.dumps({'baseline': float(before), 'artifact': float(after)}), file=answers)\n"
)
"""Runs a function as if it were a command, in a process of its own, what it prints apart from its answers."""


class CustomScores(BaseModel):
    """One scorer's scores, in the order of the prompts.

    Attributes:
        name: The criterion's name.
        documents: Document of each prompt.
        baseline: Score of the baseline's text.
        artifact: Score of the artifact's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    documents: tuple[int, ...]
    baseline: tuple[float, ...]
    artifact: tuple[float, ...]


def run(params: CustomParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Ask every scorer.

    Args:
        params: The scorers.
        inputs: Finished outputs of `baseline` and `artifact`, what each generated.
        output: Folder for custom.json.
        reporter: Receives progress.

    Raises:
        TaskError: A scorer cannot be run, fails, or does not give one pair of finite numbers per prompt.
    """
    before, after = load_generation(inputs["baseline"]), load_generation(inputs["artifact"])
    pairs = _pairs(before, after)
    documents = tuple(sample.document for sample in before.samples)
    scores = []
    with reporter.track("Asking your own scorers", len(params.scorers)) as advance:
        for scorer in params.scorers:
            found = ask(scorer, pairs)
            old, new = zip(*found, strict=True)
            scores.append(CustomScores(name=scorer.name, documents=documents, baseline=old, artifact=new))
            advance(1)
    text = json.dumps([score.model_dump(mode="json") for score in scores], indent=1, allow_nan=False)
    (output / CUSTOM_FILE).write_text(text + "\n", encoding="utf-8")


def load_custom(stage_output: Path) -> dict[str, CustomScores]:
    """Read what the stage wrote, by the criteria's names."""
    content = json.loads((stage_output / CUSTOM_FILE).read_text(encoding="utf-8"))
    scores = [CustomScores.model_validate_json(json.dumps(entry)) for entry in content]
    return {score.name: score for score in scores}


def ask(scorer: CustomScore, pairs: Sequence[Mapping[str, object]]) -> list[tuple[float, float]]:
    """Scores (baseline's, artifact's) of every pair of texts.

    Args:
        scorer: Whom to ask.
        pairs: What it is given: `prompt`, `baseline`, `artifact`, `slice` and `document` each.

    Raises:
        TaskError: It cannot be run, fails, or answers otherwise than asked.
    """
    if scorer.function is not None:
        command = [sys.executable, "-c", _BRIDGE, next(iter(scorer.files.values())), scorer.function]
    else:
        command = [scorer.files.get(part, part) for part in scorer.command or ()]
    given = "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs)
    where = f"gate.custom {scorer.name}"
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, encoding="utf-8")
    except OSError as cause:
        raise TaskError(f"the scorer cannot be run: {cause.strerror}: {command[0]}", where=where) from cause
    if done.returncode != 0:
        said = "\n  ".join(done.stderr.strip().splitlines()[-LAST_LINES:])
        raise TaskError(f"the scorer ended with {done.returncode}", where=where, hint=said)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if len(lines) != len(pairs):
        raise TaskError(
            f"the scorer gave {len(lines)} scores for {len(pairs)} prompts",
            where=where,
            hint="It has to give one for each prompt, in their order.",
        )
    return [_score(line, number, where) for number, line in enumerate(lines, start=1)]


def _score(line: str, number: int, where: str) -> tuple[float, float]:
    try:
        answer = json.loads(line)
        before, after = float(answer["baseline"]), float(answer["artifact"])
    except (ValueError, TypeError, KeyError) as cause:
        raise TaskError(
            f"score {number} is no object with numbers under baseline and artifact: {line[:80]}", where=where
        ) from cause
    if not (math.isfinite(before) and math.isfinite(after)):
        raise TaskError(f"score {number} is not finite", where=where)
    return before, after


def _pairs(before: GenerationRecord, after: GenerationRecord) -> list[dict[str, object]]:
    if [(s.document, s.prompt) for s in before.samples] != [(s.document, s.prompt) for s in after.samples]:
        raise TaskError("baseline and artifact were given other prompts", where="gate.custom")
    return [
        {
            "document": old.document,
            "slice": old.slice,
            "prompt": old.prompt_text,
            "baseline": old.text,
            "artifact": new.text,
        }
        for old, new in zip(before.samples, after.samples, strict=True)
    ]
