"""KL against bytes for budget, threshold, top-k and random assignments, each point a real artifact.

    python benchmarks/frontier.py [--folder FOLDER] [--precisions int4 w8a8] [--shares 0.05 0.1 0.2]
                                  [--draws 2] [--windows 8] [--tokens 1024] [--set KEY=VALUE]

Runs a quickstart recipe's stages up to the scores of its units (what the folder's store has is taken from
there): `quickstart.yaml` for INT4 in AWQ's layout, `quickstart_int8.yaml` for W8A8 in ONNX Runtime, as its
remedies leave it. For every share of the weights the `top_k` that first reaches it sets the size; `threshold`
between its last unit and the next, `budget` with as many bytes, and `random` units up to as many bytes stand
beside it. In W8A8 a unit can keep its size and give up integer arithmetic alone: there `budget` and `random`
are held to as many spared weights as well. Every assignment is written as the artifact that a run would ship,
read back from disk and measured on the evaluation documents, which neither codes nor scores have seen; equal
assignments are measured once, and what was measured stays in the folder.

The last line of output is one JSON object: per point the policy, the bytes of the artifact's files, its mean
KL from the lossless model in nats per token, and the sum of its units' scores.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from quantflow.measure.evaluation import load_evaluation
from quantflow.pipeline.deadline import Deadline
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.graph import build_graph
from quantflow.pipeline.machine import find_machine
from quantflow.pipeline.part import PartReporter
from quantflow.pipeline.runner import run_stages
from quantflow.pipeline.stage import Stage
from quantflow.pipeline.stage_reporter import StageReporter
from quantflow.pipeline.store import WORKSPACE, Store, Unfinished, prepare_workspace
from quantflow.pipeline.terminal import QuietTerminal
from quantflow.recipe.load import load_recipe
from quantflow.recipe.schema import Recipe
from quantflow.recipe.sensitivity import Sensitivity
from quantflow.sensitivity.assign import (
    Choice,
    Limits,
    by_budget,
    by_threshold,
    nothing_spared,
    top_k,
    total_bytes,
    total_kl,
    total_spared,
)
from quantflow.sensitivity.choosing import AssignParams
from quantflow.sensitivity.free import Free, find_free
from quantflow.sensitivity.ladder import UnitLadder
from quantflow.sensitivity.making import Maker, maker_of

RECIPES = Path(__file__).parents[1] / "recipes"
ARTIFACTS = {"int4": ("quickstart.yaml", "int4-awq"), "w8a8": ("quickstart_int8.yaml", "int8")}
"""Precision → recipe and the artifact of it."""
KEPT: Mapping[str, tuple[str, ...]] = {"int4": (), "w8a8": ("lm_head",)}
"""Units that are no part of it. A graph has the embedding in float32, which is the head, too: a fifth of the
weights that costs nothing to spare, so that every size would spare just that."""
SHARES = (0.05, 0.1, 0.2)
DRAWS = 2
"""Random assignments of each size: enough to see how far they are, each costs a forward."""
WINDOWS, TOKENS = 8, 1024
"""Evaluation windows and tokens to scan on: few, as every point runs over the former."""


@dataclass(frozen=True)
class Ground:
    """What the points of one artifact are made of, and where what was measured of them stays."""

    maker: Maker
    free: Free
    measured: Path


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--precisions", nargs="+", choices=list(ARTIFACTS), default=list(ARTIFACTS))
    parser.add_argument("--folder", type=Path, default=Path.cwd())
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--windows", type=int, default=WINDOWS)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    options = parser.parse_args()
    # This folder, where Python looks first, has a program named onnx, which is not the library.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
    print(json.dumps({name: _points(name, options) for name in options.precisions}))


def _points(precision: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    file, artifact = ARTIFACTS[precision]
    overrides = [f"data.evaluation.windows={options.windows}", *options.overrides]
    recipe = load_recipe(RECIPES / file, overrides)
    sensitivity = Sensitivity(tokens=options.tokens, keep=KEPT[precision])
    scanned = recipe.model_copy(update={"sensitivity": sensitivity})
    ground = _ground(scanned, artifact, options.folder.resolve())
    points = []
    for policy, choice in assignments(ground.free.units, options.shares, options.draws):
        size, kl = _known(ground, choice)
        point = {
            "policy": policy,
            "bytes": size,
            "kl": kl,
            "sum_of_parts": total_kl(ground.free.units, choice),
        }
        print(precision, json.dumps(point), flush=True)
        points.append(point)
    return points


def assignments(
    units: Sequence[UnitLadder], shares: Sequence[float], draws: int
) -> Iterator[tuple[str, Choice]]:
    """Policy and assignment of every point; `plain`, nothing spared, first.

    Args:
        units: The units' ladders.
        shares: Of the weights, which sets the sizes.
        draws: Random assignments of each size.
    """
    yield "plain", nothing_spared(units)
    weights = sum(unit.weights for unit in units)
    order = sorted((unit.own.kl for unit in units), reverse=True)
    middle = any(len(unit.rungs) > len(("own", "source")) for unit in units)
    for share in shares:
        count = next(
            (n for n in range(1, len(units)) if total_spared(units, top_k(units, n)) >= share * weights),
            len(units) - 1,
        )
        by_rank = top_k(units, count)
        limits = Limits(
            spared=total_spared(units, by_rank) if middle else None, bytes=total_bytes(units, by_rank)
        )
        yield "top_k", by_rank
        yield "threshold", by_threshold(units, (order[count - 1] + order[count]) / 2)
        yield "budget", by_budget(units, limits)
        for draw in range(draws):
            yield "random", _random(units, limits, random.Random(f"{share} {draw}"))


def _random(units: Sequence[UnitLadder], limits: Limits, choose: random.Random) -> Choice:
    """Units in random order, each spared if it still fits."""
    choice = nothing_spared(units)
    for index in choose.sample(range(len(units)), len(units)):
        tried = (*choice[:index], len(units[index].rungs) - 1, *choice[index + 1 :])
        fits = limits.spared is None or total_spared(units, tried) <= limits.spared
        if fits and (limits.bytes is None or total_bytes(units, tried) <= limits.bytes):
            choice = tried
    return choice


def _ground(recipe: Recipe, artifact: str, folder: Path) -> Ground:
    machine = find_machine(recipe.runtime.device)
    workspace = prepare_workspace(folder / WORKSPACE)
    graph = {
        stage.name: stage for stage in build_graph(recipe, machine, DigestCache(workspace / "digests.json"))
    }
    assign = graph[f"assign:{artifact}"]
    params = assign.params
    assert isinstance(params, AssignParams)
    # Points are measured on the evaluation documents; the lossless graph runs along, and has no baseline.
    roles = {role: name for role, name in assign.inputs.items() if role != "baseline"}
    roles |= {"baseline": "baseline"} if params.choosing.graph is None else {}
    outcomes = run_stages(
        _leading_to(set(roles.values()), graph),
        machine,
        Store(workspace / "store"),
        QuietTerminal(),
        deadline=Deadline(None),
        unchanged=lambda: None,
    )
    stored: dict[str, Path] = {}
    for outcome in outcomes:
        if outcome.stored is None:
            raise SystemExit(f"{outcome.stage.name}: {outcome.error}")
        stored[outcome.stage.name] = outcome.stored.folder
    inputs = {role: stored[name] for role, name in roles.items()}
    maker = maker_of(params.choosing, inputs, load_evaluation(inputs["data"]))
    # A store's folders are named by their content: what was measured of others is not taken.
    key = sha256("\n".join(map(str, sorted(stored.values()))).encode()).hexdigest()[:16]
    measured = folder / f"frontier-{artifact}-{key}.json"
    return Ground(maker, find_free(params.choosing, maker, inputs["scan"]), measured)


def _leading_to(names: set[str], graph: Mapping[str, Stage]) -> tuple[Stage, ...]:
    needed = set(names)
    for stage in reversed(graph.values()):
        if stage.name in needed:
            needed |= set(stage.inputs.values())
    return tuple(stage for stage in graph.values() if stage.name in needed)


def _known(ground: Ground, choice: Choice) -> tuple[int, float]:
    """Bytes of the files and mean KL of an assignment, measured once."""
    known = json.loads(ground.measured.read_text()) if ground.measured.is_file() else {}
    name = " ".join(map(str, choice))
    if name not in known:
        known[name] = _measured(ground, choice)
        ground.measured.write_text(json.dumps(known))
    size, kl = known[name]
    return size, kl


def _measured(ground: Ground, choice: Choice) -> tuple[int, float]:
    """Write an assignment, read it back and run it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unfinished = Unfinished(folder / "stage")
        for place in (unfinished.output, unfinished.progress):
            place.mkdir(parents=True)
        reporter = StageReporter("frontier", QuietTerminal(), unfinished, Deadline(None))
        assembly = ground.maker.write(ground.free.precisions(choice), unfinished.output, reporter)
        part = PartReporter(reporter, "point")
        samples, _ = ground.maker.measure(unfinished.output, part, "Running the artifact")
        assert samples.kl is not None
        return assembly.bytes, float(samples.kl.mean())


if __name__ == "__main__":
    main()
