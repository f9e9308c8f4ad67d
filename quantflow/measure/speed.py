"""The speed stage: baseline and artifact in one runtime at one time, taking turns."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median

import numpy as np

from quantflow.errors import ArtifactError
from quantflow.formats.assembly import artifact_folder, load_assembly
from quantflow.measure.memory import memory_of
from quantflow.measure.params import SpeedParams
from quantflow.measure.runtime_info import served_info
from quantflow.measure.serving import Serving, save_serving
from quantflow.measure.speed_value import (
    SPEED_METRICS,
    MemoryValue,
    Pace,
    SpeedAt,
    SpeedMetric,
    SpeedValue,
)
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.usage import machine_name
from quantflow.runtime.engine import Workload, text_config
from quantflow.runtime.environment import find_environment
from quantflow.runtime.params import resolved_dtype
from quantflow.runtime.vllm import Session, Timing, vllm_session
from quantflow.source.checkpoint import load_checkpoint

Prompts = tuple[tuple[int, ...], ...]


def run(params: SpeedParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Time an artifact and its baseline on this machine, and take their memory.

    Both are loaded at the same time, so that they can take turns within seconds: what else the machine does
    meanwhile meets both.

    Args:
        params: Runtime, requests and rounds.
        inputs: Finished outputs of `source` and `assemble`.
        output: Folder for serving.json.
        reporter: Receives progress and holds the runtime's log until the stage is finished.

    Raises:
        ArtifactError: vLLM cannot load or run one of them, or computes them in different types.
        RuntimeUnavailableError: vLLM is not installed.
    """
    checkpoint = load_checkpoint(inputs["source"])
    folders = {"baseline": checkpoint.folder, "artifact": artifact_folder(inputs["assemble"])}
    sizes = {"baseline": checkpoint.bytes, "artifact": load_assembly(inputs["assemble"]).bytes}
    environment = find_environment("vllm", params.serving.device)
    dtype = resolved_dtype(params.serving, checkpoint.dtype)
    length = params.prompt_tokens + params.output_tokens
    workload = Workload(length, max(params.concurrency), max(length, params.batch_tokens))
    with ExitStack() as stack:
        sessions: dict[str, Session] = {}
        with reporter.track("Loading into vLLM", 2) as advance:
            for who, folder in folders.items():
                log = reporter.progress_folder / f"vllm-{who}.log"
                session = vllm_session(environment, folder, params.serving, dtype, workload, log)
                sessions[who] = stack.enter_context(session)
                advance(1)
        if sessions["artifact"].loaded.dtype != sessions["baseline"].loaded.dtype:
            found = {who: session.loaded.dtype for who, session in sessions.items()}
            raise ArtifactError(
                f"vLLM computes them in different types: {found}", where=str(folders["artifact"])
            )
        vocab_size = min(int(text_config(folder)["vocab_size"]) for folder in folders.values())
        speed = time_in_turns(params, sessions, vocab_size, reporter)
        memory = MemoryValue(
            device=params.serving.device,
            **{who: memory_of(session, sizes[who]) for who, session in sessions.items()},
        )
        serving = Serving(
            runtime=served_info(sessions["artifact"], params.serving),
            baseline_runtime=served_info(sessions["baseline"], params.serving),
            speed=speed,
            memory=memory,
        )
    save_serving(output, serving)


def time_in_turns(
    params: SpeedParams, sessions: Mapping[str, Session], vocab_size: int, reporter: Reporter
) -> SpeedValue:
    """Time baseline and artifact, one right after the other, the other one first in the next round.

    Args:
        params: Requests and rounds.
        sessions: `baseline` and `artifact`, loaded.
        vocab_size: Prompts are drawn from this many token ids.
        reporter: Receives progress.
    """
    paces: dict[tuple[str, int], list[Pace]] = {(w, c): [] for w in sessions for c in params.concurrency}
    with reporter.track("Timing requests", (params.rounds + 1) * len(paces)) as advance:
        for number in range(params.rounds + 1):
            order = sorted(sessions, reverse=number % 2 == 1)
            for concurrency in params.concurrency:
                prompts = draw_prompts(number, concurrency, params.prompt_tokens, vocab_size)
                for who in order:
                    timing = sessions[who].time(prompts, params.output_tokens)
                    if number > 0:  # the first round warms both up
                        paces[who, concurrency].append(pace_of(timing))
                    advance(1)
    return SpeedValue(
        computed_on=machine_name(params.serving.device),
        prompt_tokens=params.prompt_tokens,
        output_tokens=params.output_tokens,
        rounds=params.rounds,
        at=tuple(_beside(c, paces["baseline", c], paces["artifact", c]) for c in params.concurrency),
    )


def draw_prompts(seed: int, count: int, tokens: int, vocab_size: int) -> Prompts:
    """Prompts of random token ids; equal arguments give equal prompts."""
    ids = np.random.default_rng((seed, count)).integers(vocab_size, size=(count, tokens))
    return tuple(tuple(row) for row in ids.tolist())


def pace_of(timing: Timing) -> Pace:
    """One round's figures; see `Pace`."""
    steps = max(1, timing.tokens - 1)
    between = [(last - first) / steps for first, last in zip(timing.first, timing.last, strict=True)]
    return Pace(
        throughput=len(timing.last) * timing.tokens / max(timing.last),
        time_to_first_token=fmean(timing.first),
        time_per_output_token=fmean(between),
    )


def _beside(concurrency: int, baseline: list[Pace], artifact: list[Pace]) -> SpeedAt:
    return SpeedAt(
        concurrency=concurrency,
        baseline=_median(baseline),
        artifact=_median(artifact),
        speedup={
            metric: tuple(speedup(metric, b, a) for b, a in zip(baseline, artifact, strict=True))
            for metric in SPEED_METRICS
        },
    )


def speedup(metric: SpeedMetric, baseline: Pace, artifact: Pace) -> float:
    """How many times as fast the artifact is: more tokens a second, or fewer seconds a token."""
    before, after = getattr(baseline, metric), getattr(artifact, metric)
    return float(after / before if metric == "throughput" else before / after)


def _median(paces: list[Pace]) -> Pace:
    return Pace(**{metric: median(getattr(pace, metric) for pace in paces) for metric in SPEED_METRICS})
