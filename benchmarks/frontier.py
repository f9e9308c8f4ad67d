"""KL against bytes for budget, threshold, top-k and random assignments, each point a real artifact.

    python benchmarks/frontier.py [--folder FOLDER] [--recipe RECIPE] [--shares 0.05 0.1 0.2] [--draws 2]
                                  [--set KEY=VALUE]

Runs the recipe's stages up to the scan (what the folder's store has is taken from there). For every share of
the weights the `top_k` that first reaches it sets the size; `threshold` between its last unit and the next,
`budget` with as many bytes, and `random` units up to as many bytes stand beside it. Every assignment is
written as the artifact that a run would ship, read back from disk and measured on the evaluation documents,
which neither codes nor scores have seen; equal assignments are measured once.

The last line of output is one JSON object: per point the policy, the bytes of the artifact's files, its mean
KL from the lossless model in nats per token, and the sum of its units' scores.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quantflow.measure.evaluation import load_evaluation
from quantflow.pipeline.assigning import assigning_stages
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
from quantflow.recipe.artifacts import HfArtifact
from quantflow.recipe.load import load_recipe
from quantflow.recipe.schema import Recipe
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

RECIPE = Path(__file__).parents[1] / "recipes" / "quickstart.yaml"
SHARES = (0.05, 0.1, 0.2)
DRAWS = 2
"""Random assignments of each size: enough to see how far they are, each costs a forward."""
NEEDED = ("source", "data", "baseline", "quantize", "scan")


@dataclass(frozen=True)
class Ground:
    """What the points of one artifact are made of."""

    maker: Maker
    free: Free


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--folder", type=Path, default=Path.cwd())
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    options = parser.parse_args()
    recipe = load_recipe(options.recipe, ["sensitivity.method=auto", *options.overrides])
    ground = _ground(recipe, options.folder.resolve())
    found: dict[Choice, tuple[int, float]] = {}
    points = []
    for policy, choice in assignments(ground.free.units, options.shares, options.draws):
        if choice not in found:
            found[choice] = _measured(ground, choice)
        size, kl = found[choice]
        point = {
            "policy": policy,
            "bytes": size,
            "kl": kl,
            "sum_of_parts": total_kl(ground.free.units, choice),
        }
        print(json.dumps(point), flush=True)
        points.append(point)
    print(json.dumps({"int4": points}))


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
    for share in shares:
        count = next(
            (n for n in range(1, len(units)) if total_spared(units, top_k(units, n)) >= share * weights),
            len(units) - 1,
        )
        by_rank = top_k(units, count)
        room = total_bytes(units, by_rank)
        yield "top_k", by_rank
        yield "threshold", by_threshold(units, (order[count - 1] + order[count]) / 2)
        yield "budget", by_budget(units, Limits(bytes=room))
        for draw in range(draws):
            yield "random", _random(units, room, random.Random(f"{share} {draw}"))


def _random(units: Sequence[UnitLadder], room: int, choose: random.Random) -> Choice:
    """Units in random order, each spared if it still fits."""
    choice = list(nothing_spared(units))
    for index in choose.sample(range(len(units)), len(units)):
        tried = [*choice[:index], len(units[index].rungs) - 1, *choice[index + 1 :]]
        if total_bytes(units, tuple(tried)) <= room:
            choice = tried
    return tuple(choice)


def _ground(recipe: Recipe, folder: Path) -> Ground:
    artifact = next(a for a in recipe.artifacts if not isinstance(a, HfArtifact))
    machine = find_machine(recipe.runtime.device)
    workspace = prepare_workspace(folder / WORKSPACE)
    digests = DigestCache(workspace / "digests.json")
    graph = build_graph(recipe, machine, digests)
    outcomes = run_stages(
        _needed(graph),
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
    inputs: Mapping[str, Path] = {**stored, "codes": stored["quantize"]}
    params = assigning_stages(recipe, artifact, machine)[0].params
    assert isinstance(params, AssignParams)
    maker = maker_of(params.choosing, inputs, load_evaluation(stored["data"]))
    return Ground(maker, find_free(params.choosing, maker, stored["scan"]))


def _needed(graph: Sequence[Stage]) -> tuple[Stage, ...]:
    return tuple(stage for stage in graph if stage.name in NEEDED)


def _measured(ground: Ground, choice: Choice) -> tuple[int, float]:
    """Bytes of the files and mean KL of an assignment, written and read back."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unfinished = Unfinished(folder / "stage")
        for place in (unfinished.output, unfinished.progress):
            place.mkdir(parents=True)
        reporter = StageReporter("frontier", QuietTerminal(), unfinished, Deadline(None))
        kept = ground.free.kept_with(choice)
        assembly = ground.maker.write(kept, unfinished.output, reporter)
        part = PartReporter(reporter, "point")
        samples, _ = ground.maker.measure(unfinished.output, part, "Running the artifact")
        assert samples.kl is not None
        return assembly.bytes, float(samples.kl.mean())


if __name__ == "__main__":
    main()
