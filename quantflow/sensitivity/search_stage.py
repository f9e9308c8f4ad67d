"""The search stage: units are spared round by round until the gate's criteria hold on selection documents.

Each round writes an artifact from the stored codes, reads it back and judges it. Nothing is calibrated again,
and the evaluation documents are not opened. The best artifact so far is complete on disk at every moment: the
one with nothing spared in the assign stage's output, a later one in `round-NNN/written` of what lets this
stage go on, and in the end in `written/` of its output.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from quantflow.formats.assembly import WRITTEN_FOLDER, load_assembly, pass_on
from quantflow.measure.measurement import load_samples
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.part import PartReporter
from quantflow.sensitivity.assign_stage import PLAIN
from quantflow.sensitivity.assignment import (
    SearchRound,
    StoppedBy,
    load_assignment,
    save_assignment,
)
from quantflow.sensitivity.candidate import Bench, Candidate, measured, written
from quantflow.sensitivity.choose import spared_limit
from quantflow.sensitivity.choosing import SearchParams
from quantflow.sensitivity.decisions import Sizes, decisions, mix_kl, next_unit, other_bytes
from quantflow.sensitivity.free import Free, find_free
from quantflow.sensitivity.frontier import Point, frontier
from quantflow.sensitivity.judging import Judge
from quantflow.sensitivity.kept import ASSIGNMENT, save_precisions
from quantflow.sensitivity.rounds import Round, RoundRecords, best_round
from quantflow.sensitivity.search import next_point, strain
from quantflow.sensitivity.telling import (
    added_units,
    search_reasons,
    tell_goal_missed,
    tell_round,
)


def run(params: SearchParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Search; write `assignment.json`, `precisions.json` and the best artifact to `written/`.

    Args:
        params: The artifact, the gate's margins, and where to stop.
        inputs: Finished outputs of `source`, `inspect`, `data`, `codes`, `scan`, `assignment` (the assign
            stage's) and, on the selection documents, `baseline`.
        output: Where to write.
        reporter: Receives progress and an event of each round.

    Raises:
        ArtifactError: A candidate's logits are not finite.
    """
    search = _Search.of(params, inputs, reporter)
    rounds, stopped = search.rounds()
    best = best_round(rounds)
    points, free = search.points, search.free
    choice = points[rounds[best].point].choice
    if not rounds[best].holds:
        tell_goal_missed(params, rounds, best, stopped, reporter)
    found = load_assignment(inputs[ASSIGNMENT])
    record = found.model_copy(
        update={
            "settings": {"max_spared": params.max_spared, "max_rounds": params.max_rounds},
            "decisions": decisions(free.units, choice, search_reasons(free.units, points, rounds, best)),
            "mix": rounds[best].mix,
            "next": next_unit(free.units, choice),
            "rounds": tuple(
                SearchRound(
                    number=number,
                    added=added_units(free.units, points, rounds, number),
                    mix=done.mix,
                    criteria=done.criteria,
                    holds=done.holds,
                    best=best_round(rounds[: number + 1]) == number,
                )
                for number, done in enumerate(rounds)
            ),
            "stopped_by": stopped,
        }
    )
    save_assignment(output, record)
    save_precisions(output, free.precisions(choice))
    pass_on(search.folder(best), output / WRITTEN_FOLDER)


@dataclass(frozen=True)
class _Search:
    """A search under way.

    Attributes:
        params: Its parameters.
        assigned: Output of the assign stage: the artifact with nothing spared and its measurement.
        bench: What candidates are made of.
        free: The units to choose for.
        sizes: Of the artifact.
        points: Points of the frontier that may be tried, from nothing spared on.
        further: Whether `max_spared` keeps anything of use from being tried.
        judge: The gate's criteria.
        reporter: Of the stage.
    """

    params: SearchParams
    assigned: Path
    bench: Bench
    free: Free
    sizes: Sizes
    points: tuple[Point, ...]
    further: bool
    judge: Judge
    reporter: Reporter

    @classmethod
    def of(cls, params: SearchParams, inputs: Mapping[str, Path], reporter: Reporter) -> "_Search":
        bench = Bench.of(params.choosing, inputs)
        free = find_free(params.choosing, bench.maker, inputs["scan"])
        plain = load_assembly(inputs[ASSIGNMENT] / WRITTEN_FOLDER)
        points = frontier(free.units, spared_limit(free.weights, params.max_spared))
        return cls(
            params=params,
            assigned=inputs[ASSIGNMENT],
            bench=bench,
            free=free,
            sizes=Sizes(free.weights, other_bytes(free.units, plain.weight_bytes)),
            points=points,
            further=len(points) < len(frontier(free.units)),
            judge=Judge.of(params.gate, inputs, bench.windows),
            reporter=reporter,
        )

    def rounds(self) -> tuple[list[Round], StoppedBy]:
        """All rounds, those before an interruption too, and why there are no more."""
        records = RoundRecords(self.reporter.progress_folder / "rounds")
        rounds = records.load()
        for number, done in enumerate(rounds):
            self._tell(rounds, number, done)
        while True:
            stopped, point = self._next(rounds)
            if stopped is not None:
                return rounds, stopped
            number = len(rounds)
            rounds.append(self._round(number, point))
            self.reporter.keep(partial(records.keep, number, rounds[-1]))
            self._tell(rounds, number, rounds[-1])
            self._drop_all_but(best_round(rounds), len(rounds))

    def folder(self, number: int) -> Path:
        """Where the artifact of a round is."""
        owner = self.assigned if number == 0 else self.reporter.progress_folder / _round_name(number)
        return owner / WRITTEN_FOLDER

    def _next(self, rounds: Sequence[Round]) -> tuple[StoppedBy | None, int]:
        """Why there is no further round, or the point to try in it."""
        if not rounds:
            return None, 0
        if rounds[-1].holds:
            return "holds", 0
        if len(rounds) == 1 and self.params.remedied:
            return None, 0
        point = next_point(self.points, rounds[-1].point, rounds[-1].strain)
        if point is None:
            return "max_spared" if self.further else "nothing_left", 0
        if len(rounds) > self.params.max_rounds:
            return "max_rounds", 0
        limit = self.params.time_limit
        if limit is not None and sum(done.seconds for done in rounds) >= limit:
            return "time_limit", 0
        return None, point

    def _round(self, number: int, point: int) -> Round:
        began = time.monotonic()
        choice, folder = self.points[point].choice, self.folder(number)
        if number == 0:
            candidate = Candidate(load_assembly(folder), load_samples(self.assigned / PLAIN))
        else:
            part = PartReporter(self.reporter, _round_name(number))
            assembly = written(self.bench, self.free.precisions(choice), folder, part)
            candidate = Candidate(assembly, measured(self.bench, folder, part, f"Round {number}"))
        criteria = self.judge.criteria(candidate.samples)
        return Round(
            point=point,
            mix=mix_kl(self.free.units, choice, self.sizes, bytes=candidate.assembly.bytes, kl=candidate.kl),
            criteria=criteria,
            strain=strain(criteria),
            seconds=time.monotonic() - began,
        )

    def _tell(self, rounds: Sequence[Round], number: int, done: Round) -> None:
        added = added_units(self.free.units, self.points, rounds, number)
        tell_round(self.params, number, done, added, self.reporter)

    def _drop_all_but(self, best: int, count: int) -> None:
        for number in range(1, count):
            if number != best:
                shutil.rmtree(self.folder(number), ignore_errors=True)


def _round_name(number: int) -> str:
    return f"round-{number:03d}"
