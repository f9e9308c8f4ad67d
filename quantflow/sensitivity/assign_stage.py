"""The assign stage: which units of an artifact are spared, and what the mix of them measures as.

The artifact with nothing spared and the one that the policy chose are both written, read back and measured on
the selection documents. A mix that is worse than nothing spared is rolled back.
"""

from collections.abc import Mapping
from pathlib import Path

from quantflow.formats.assembly import WRITTEN_FOLDER, pass_on
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.part import PartReporter
from quantflow.sensitivity.assign import Choice, nothing_spared
from quantflow.sensitivity.assignment import AssignmentRecord, MixKl, save_assignment
from quantflow.sensitivity.candidate import MEASURED_FOLDER, Bench, Candidate, measured, written
from quantflow.sensitivity.choose import choose
from quantflow.sensitivity.choosing import AssignParams
from quantflow.sensitivity.decisions import (
    ROLLED_BACK,
    Sizes,
    decisions,
    mix_kl,
    next_unit,
    other_bytes,
    reasons,
    told_frontier,
)
from quantflow.sensitivity.free import Free, find_free
from quantflow.sensitivity.kept import save_precisions

PLAIN = "plain"
"""Where the measurement of the artifact with nothing spared is put."""
NUMBERS = ("max_spared", "effective_bits", "max_bytes", "threshold", "top_k")


def run(params: AssignParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Choose, write, measure; where a search is to choose, only the artifact with nothing spared.

    Writes `assignment.json`, `precisions.json`, the artifact to `written/` and the measurement of the one
    with nothing spared to `plain/`.

    Args:
        params: The artifact and the policy.
        inputs: Finished outputs of `source`, `data`, `codes`, `scan` and, on the selection documents,
            `baseline`.
        output: Where to write.
        reporter: Receives progress and events.

    Raises:
        RecipeError: A pattern or a limit cannot be met.
        QuantizationError: A score of the scan is missing or no finite number.
        DataError: There is no selection text.
    """
    bench = Bench.of(params.choosing, inputs)
    free = find_free(params.choosing, bench.maker, inputs["scan"])
    parts = {name: PartReporter(reporter, name) for name in (PLAIN, "mix")}
    folders = {name: part.progress_folder / WRITTEN_FOLDER for name, part in parts.items()}
    nothing = free.precisions(nothing_spared(free.units))
    plain_assembly = written(bench, nothing, folders[PLAIN], parts[PLAIN])
    sizes = Sizes(free.weights, other_bytes(free.units, plain_assembly.weight_bytes))
    choice = choose(params, free.units, sizes)
    samples = measured(bench, folders[PLAIN], parts[PLAIN], "Running the artifact, nothing spared")
    plain = _mix(free, nothing_spared(free.units), sizes, Candidate(plain_assembly, samples))
    mix, best, rolled_back = plain, PLAIN, None
    why = reasons(params, free.units, choice)
    if choice != nothing_spared(free.units):
        assembly = written(bench, free.precisions(choice), folders["mix"], parts["mix"])
        samples = measured(bench, folders["mix"], parts["mix"], "Running the mix")
        mix, best = _mix(free, choice, sizes, Candidate(assembly, samples)), "mix"
        if not mix.kl < plain.kl:
            rolled_back, mix, best = mix, plain, PLAIN
            why = {unit.unit: ROLLED_BACK for unit in free.units if unit.own.kl} | {
                unit.unit: why[unit.unit] for unit, place in zip(free.units, choice, strict=True) if not place
            }
            choice = nothing_spared(free.units)
            _tell_rollback(params, rolled_back, plain, reporter)
    record = AssignmentRecord(
        artifact=params.choosing.assemble.name,
        policy=params.policy,
        settings={name: value for name in NUMBERS if (value := getattr(params, name)) is not None},
        ladder=(*params.choosing.ladder, free.source),
        decisions=decisions(free.units, choice, why),
        frontier=told_frontier(free.units, sizes),
        plain=plain,
        mix=mix,
        next=next_unit(free.units, choice),
        rolled_back=rolled_back,
    )
    save_assignment(output, record)
    save_precisions(output, free.precisions(choice))
    pass_on(parts[PLAIN].progress_folder / MEASURED_FOLDER, output / PLAIN)
    pass_on(folders[best], output / WRITTEN_FOLDER)


def _mix(free: Free, choice: Choice, sizes: Sizes, candidate: Candidate) -> MixKl:
    return mix_kl(free.units, choice, sizes, bytes=candidate.assembly.bytes, kl=candidate.kl)


def _tell_rollback(params: AssignParams, mix: MixKl, plain: MixKl, reporter: Reporter) -> None:
    reporter.event(
        "assignment-rolled-back",
        f"The mix of {params.choosing.assemble.name}, {mix.units} units spared, has a KL of {mix.kl:.4g} on "
        f"the selection documents, and {plain.kl:.4g} with nothing spared: nothing is spared.",
        artifact=params.choosing.assemble.name,
        kl_mix=mix.kl,
        kl_plain=plain.kl,
    )
