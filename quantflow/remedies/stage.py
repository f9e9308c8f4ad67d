"""The remedy stage: INT8 made accurate, whole models judged by their KL on the selection documents.

Every option of every unit is scored by an estimate of what it does to the logits; ways to choose among them,
and simple rules beside them, are then measured as whole models, emulated in torch. The best one ships.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from quantflow.data.windows import SELECTION_FILE, load_windows, scored_documents
from quantflow.errors import QuantizationError
from quantflow.measure.batches import scored_targets
from quantflow.measure.hidden import hidden_to_disk
from quantflow.measure.scoring import score_against
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.part import PartReporter
from quantflow.quantize.emulated import EmulatedDecoder
from quantflow.quantize.int8_block import int8_file, save_int8_block
from quantflow.quantize.params import RemedyParams
from quantflow.quantize.stage import head_share
from quantflow.remedies.choose import Rule, Scores, choose, fixed
from quantflow.remedies.estimate import estimate
from quantflow.remedies.gradients import final_rows
from quantflow.remedies.model import RemediedModel
from quantflow.remedies.options import Option
from quantflow.remedies.record import RemedyRecord, RemedyTrial, UnitRemedy, save_remedy_record
from quantflow.remedies.sizes import EXPONENTS, TRIAL_TOKENS
from quantflow.sensitivity.boundaries import Boundaries
from quantflow.sensitivity.text import ScanText, scan_text
from quantflow.source.checkpoint import load_checkpoint

PLAIN = "minmax"
SIMPLE = {"16 channels apart": Option(channels=16), "smoothing": Option(exponent=0.5)}
"""Rules that give every unit the same, beside which choosing has to be worth it."""
WIDE_TWICE = "widest inputs in two products, 16 channels apart elsewhere"
"""What was best by hand on SmolLM2: `down` reads the widest inputs, which have tails in all channels."""
RULES = (
    Rule("by effect", lambda option: True),
    Rule("by effect, no smoothing", lambda option: not option.exponent),
    Rule("by effect, inputs once", lambda option: not option.twice),
)

Options = Mapping[str, Option]


def run(params: RemedyParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Choose what is done for every unit and write its INT8 values.

    Writes `codes/<scheme>/block-NNNNN.safetensors`, `head.safetensors` beside them, and `remedy.json`.

    Args:
        params: Scheme, kept units, budget, device and size of batches.
        inputs: Finished outputs of `source`, `data` and, as `codes`, `quantize`.
        output: Where to write.
        reporter: Receives progress and events.

    Raises:
        QuantizationError: A weight, or what a model in INT8 gives, is not finite.
        SourceError: A gradient is not finite.
    """
    folder = load_checkpoint(inputs["source"]).folder
    decoder = StreamedDecoder(folder, SafetensorsReader(folder), params.device, torch.float32)
    model = RemediedModel(decoder, inputs["codes"], params)
    text = scan_text(load_windows(inputs["data"] / SELECTION_FILE), TRIAL_TOKENS, params.batch_tokens)
    plain: Options = dict.fromkeys(model.sizes, Option())
    trials: tuple[RemedyTrial, ...] = ()
    if text is None:
        reporter.event(
            "remedies-not-judged",
            "There is no selection text to tell what a remedy does: weights and ranges are INT8 as they "
            "come, with nothing apart and nothing smoothed.",
        )
        chosen, scores = plain, None
    else:
        chosen, trials, scores = _judge(model, text, plain, reporter)
    units = _write(model, chosen, scores, output)
    share = model.floating_share(chosen)
    _report_budget(model, share, reporter)
    save_remedy_record(
        output,
        RemedyRecord(
            method="w8a8" if params.scheme.method == "w8a8" else "int8",
            reduced=params.reduced,
            max_floating=params.max_floating,
            floating_share=share,
            tokens=0 if text is None else text.tokens,
            trials=trials,
            units=units,
            forwards=_forwards(decoder, len(trials)) if trials else {},
        ),
    )


def _forwards(decoder: StreamedDecoder, trials: int) -> dict[str, float]:
    """Whole forwards over the selection tokens; the options' products count as the layers they repeat."""
    blocks = 1 - head_share(decoder)
    return {
        "forward": 1.0,
        "forward again": blocks,
        "backward": 1.0,
        "options": (1 + len(EXPONENTS)) * blocks,
        "trials": float(trials),
    }


@dataclass(frozen=True)
class _Trial:
    name: str
    options: Options


def _judge(
    model: RemediedModel, text: ScanText, plain: Options, reporter: Reporter
) -> tuple[Options, tuple[RemedyTrial, ...], Scores]:
    """What is best for the whole model, all that was measured, and the estimates."""
    boundaries = Boundaries(model.decoder, text, reporter)
    boundaries.fill(reporter, "Running the lossless model")
    scores = estimate(model, boundaries, reporter)
    budget = model.params.max_floating * model.weights - model.kept_weights
    candidates = [
        _Trial(PLAIN, plain),
        *(_Trial(name, fixed(scores, model.sizes, budget, rule)) for name, rule in _simple(model).items()),
        *(_Trial(rule.name, choose(scores, model.sizes, budget, rule)) for rule in RULES),
    ]
    lossless = final_rows(boundaries)
    measured: dict[str, float] = {}
    distinct: list[_Trial] = []
    for number, trial in enumerate(candidates):
        if any(trial.options == other.options for other in distinct):
            continue
        distinct.append(trial)
        measured[trial.name] = _mean_kl(
            model, trial, text, lossless, PartReporter(reporter, f"trial-{number}")
        )
    best = min(distinct, key=lambda trial: measured[trial.name])
    trials = tuple(
        RemedyTrial(
            name=trial.name,
            kl=measured[trial.name],
            kl_estimated=sum(scores[unit][option] for unit, option in trial.options.items()),
            floating_share=model.floating_share(trial.options),
            twice_share=model.twice_share(trial.options),
            taken=trial is best,
        )
        for trial in distinct
    )
    _report_no_gain(measured, best, reporter)
    return best.options, trials, scores


def _report_no_gain(measured: Mapping[str, float], best: _Trial, reporter: Reporter) -> None:
    """Say that choosing was not worth it: what a rule gives every unit is as good or better."""
    if best.name not in {rule.name for rule in RULES}:
        reporter.event(
            "simple-remedy-taken",
            f"Choosing unit by unit measured no better on the selection text than {best.name!r} for all: "
            "that is taken.",
            kl=dict(measured),
        )


def _simple(model: RemediedModel) -> dict[str, Options]:
    """Rules that look at no score: name → full name of a unit → option."""
    widest = max((inputs for _, inputs in model.sizes.values()), default=0)
    wide_twice = {
        unit: Option(twice=True) if inputs == widest else Option(channels=16)
        for unit, (_, inputs) in model.sizes.items()
    }
    same = {name: dict.fromkeys(model.sizes, option) for name, option in SIMPLE.items()}
    return same | ({WIDE_TWICE: wide_twice} if model.params.scheme.method == "w8a8" else {})


def _mean_kl(
    model: RemediedModel, trial: _Trial, text: ScanText, lossless: Tensor, reporter: Reporter
) -> float:
    """Mean KL of a whole model in INT8 on the selection text, nats per token."""
    decoder, device = model.decoder, model.params.device
    artifact = EmulatedDecoder(decoder.folder, partial(model.values, options=trial.options), device)
    samples = score_against(
        decoder,
        lambda begin, end: lossless[begin:end],
        artifact,
        hidden_to_disk(
            artifact, text.batches, reporter.progress_folder, reporter, f"Measuring INT8: {trial.name}"
        ),
        scored_targets(text.windows),
        scored_documents(text.windows),
        QuantizationError,
        reporter,
    )
    assert samples.kl is not None
    return float(samples.kl.mean())


def _write(
    model: RemediedModel, chosen: Options, scores: Scores | None, output: Path
) -> tuple[UnitRemedy, ...]:
    """Write all values; what was done, unit by unit."""
    scheme, units = model.params.scheme, []
    int8_file(output, scheme.id, 0).parent.mkdir(parents=True, exist_ok=True)
    for index in (*range(model.decoder.num_blocks), None):
        values = model.values(index, chosen)
        save_int8_block(int8_file(output, scheme.id, index), values)
        for unit, linears in model.linears(index).items():
            if unit not in chosen:
                continue
            option, how = chosen[unit], values.linears[linears[0]].input
            own = None if scores is None else scores[unit]
            units.append(
                UnitRemedy(
                    unit=unit,
                    exponent=option.exponent,
                    channels=option.channels,
                    twice=values.linears[linears[0]].remainder is not None,
                    range=None if how is None else option.range,
                    low=None if how is None else how.lowest_value,
                    high=None if how is None else how.highest_value,
                    kl=None if own is None else own[option],
                    kl_minmax=None if own is None else own[Option()],
                )
            )
    return tuple(units)


def _report_budget(model: RemediedModel, share: float, reporter: Reporter) -> None:
    """Say that kept units alone take more than may be in floating point."""
    if share > model.params.max_floating:
        reporter.event(
            "floating-share-exceeded",
            f"Units that are kept are {share:.1%} of all linear weights, more than the "
            f"{model.params.max_floating:.1%} that may be in floating point: no channels are apart.",
            share=share,
        )
