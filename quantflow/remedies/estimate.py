"""Estimates of what every option of every unit does to the logits, from one forward and one backward pass."""

import json
from pathlib import Path

import torch

from quantflow.model.passes import PassProgress
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.part import PartReporter
from quantflow.remedies.gradients import UnitGradients, block_gradients, head_gradients
from quantflow.remedies.model import RemediedModel
from quantflow.remedies.options import Option
from quantflow.remedies.scoring import score_options
from quantflow.remedies.sizes import HEAD_POSITIONS
from quantflow.sensitivity.boundaries import Boundaries
from quantflow.sensitivity.logits import loss_gradients

Found = dict[str, dict[Option, float]]


def estimate(model: RemediedModel, boundaries: Boundaries, reporter: Reporter) -> Found:
    """Score the options of every unit, from where an interrupted run had come to.

    Args:
        model: The model.
        boundaries: Its states before every block, all there.
        reporter: Is told of progress, and keeps it.

    Returns:
        Full name of a unit → option → estimated KL, nats per scored position.

    Raises:
        SourceError: A gradient is not finite.
    """
    decoder = model.decoder
    part = PartReporter(reporter, "estimate")
    progress, folder = PassProgress(part), part.progress_folder
    positions = int(boundaries.text.positions.sum())
    shapes = [torch.Size((*batch.ids.shape, decoder.hidden_size)) for batch in boundaries.text.batches]
    last = decoder.num_blocks
    kept = progress.load(shapes)
    done, behind = kept if kept is not None and _are_kept(folder, last, kept[0]) else (0, [])
    found: Found = {}
    with part.track("Trying remedies unit by unit", last + 1) as advance:
        advance(done)
        if not behind:
            behind = list(loss_gradients(decoder, boundaries.text, lambda n: boundaries.state(last, n)))
        for index in range(last - 1, -1, -1):
            path = folder / f"scores-{index:05d}.json"
            if index >= last - done:
                found |= _load(path)
                continue
            with decoder.loaded_block(index) as block:
                gradients = block_gradients(boundaries, index, block, behind)
            scores = _scores(model, index, gradients, positions)
            part.keep(lambda path=path, scores=scores: _save(path, scores))  # type: ignore[misc]
            progress.keep(last - index, behind)
            found |= scores
            advance(1)
        head = head_gradients(boundaries, HEAD_POSITIONS)
        found |= _scores(model, None, {"": head}, len(head.inputs))
        advance(1)
    return found


def _scores(
    model: RemediedModel, index: int | None, gradients: dict[str, UnitGradients], positions: int
) -> Found:
    found: Found = {}
    for unit, problem in model.problems(index).items():
        own = gradients["" if index is None else unit.rpartition(".")[2]]
        sums = score_options(problem, own.inputs, own.gradients)
        found[unit] = {option: nats / positions for option, nats in sums.items()}
    return found


def _are_kept(folder: Path, blocks: int, done: int) -> bool:
    return all((folder / f"scores-{index:05d}.json").exists() for index in range(blocks - done, blocks))


def _save(path: Path, scores: Found) -> None:
    content = {
        unit: [[o.exponent, o.channels, o.range, o.twice, kl] for o, kl in own.items()]
        for unit, own in scores.items()
    }
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(path)


def _load(path: Path) -> Found:
    content = json.loads(path.read_text(encoding="utf-8"))
    return {unit: {Option(*option): kl for *option, kl in own} for unit, own in content.items()}
