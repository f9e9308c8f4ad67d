"""The speed stage of an ONNX artifact: it and the lossless graph in ONNX Runtime, taking turns."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from quantflow.formats.assembly import artifact_folder, load_assembly
from quantflow.formats.folder import folder_bytes
from quantflow.formats.onnx.base import load_base
from quantflow.formats.onnx.census_record import load_expectation
from quantflow.formats.onnx.companions import context_length
from quantflow.measure.onnx_info import session_info
from quantflow.measure.onnx_params import OnnxSpeedParams
from quantflow.measure.serving import Serving, save_serving
from quantflow.measure.speed import draw_prompts, pace_of, speedup
from quantflow.measure.speed_value import SPEED_METRICS, MemoryOf, MemoryValue, Pace, SpeedAt, SpeedValue
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.usage import machine_name
from quantflow.runtime.ort_process import GraphProcess, graph_process

# Instruction sets that multiply 8 bits with 8 bits in one step.
FAST_INT8 = ("avx512_vnni", "avx_vnni", "amx_int8")


def run(params: OnnxSpeedParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Time an artifact and the lossless graph on this machine, and take their memory.

    Each has a process of its own, so that memory can be told apart; both are loaded at the same time, so that
    they can take turns within seconds.

    Args:
        params: Session options, prompts and rounds.
        inputs: Finished outputs of `base` and `assemble`.
        output: Folder for serving.json.
        reporter: Receives progress and events, and holds ONNX Runtime's log until the stage is finished.

    Raises:
        ArtifactError: ONNX Runtime cannot load or run one of them.
    """
    folders = {"baseline": load_base(inputs["base"]).folder, "artifact": artifact_folder(inputs["assemble"])}
    sizes = {
        "baseline": folder_bytes(folders["baseline"]),
        "artifact": load_assembly(inputs["assemble"]).bytes,
    }
    with ExitStack() as stack:
        graphs: dict[str, GraphProcess] = {}
        with reporter.track("Loading into ONNX Runtime", 2) as advance:
            for who, folder in folders.items():
                log = reporter.progress_folder / f"onnxruntime-{who}.log"
                graphs[who] = stack.enter_context(graph_process(folder, params.session, log))
                advance(1)
        contexts = fitting_contexts(params, folders["baseline"], reporter)
        speed = graphs_in_turns(params, contexts, graphs, reporter)
        memory = MemoryValue(
            device=params.session.provider,
            **{who: _memory(graph, sizes[who]) for who, graph in graphs.items()},
        )
        infos = {
            who: session_info(
                params.session,
                params.instruction_set,
                graph.loaded.provider,
                graph.loaded.dtype,
                graph.loaded.chunk,
            )
            for who, graph in graphs.items()
        }
    expected = load_expectation(inputs["assemble"]).computes
    if expected == "int8" and params.session.provider == "cpu" and params.instruction_set not in FAST_INT8:
        reporter.event(
            "no-fast-int8",
            "This processor has no VNNI, without which INT8 is slower than it could be and may be slower "
            "than floating point: the figures hold for its like; measure where the model is to be served.",
            instruction_set=params.instruction_set,
        )
    save_serving(
        output,
        Serving(runtime=infos["artifact"], baseline_runtime=infos["baseline"], speed=speed, memory=memory),
    )


def fitting_contexts(params: OnnxSpeedParams, folder: Path, reporter: Reporter) -> tuple[int, ...]:
    """Lengths of prompts for which the model has room, those to be generated included.

    Args:
        params: Prompts asked for.
        folder: The lossless graph, whose genai_config.json says how long its context is.
        reporter: Is told of those that are left out.
    """
    room = context_length(folder) - params.output_tokens
    fitting = tuple(context for context in params.contexts if context <= room)
    if fitting == params.contexts:
        return fitting
    taken = fitting or (max(1, room),)
    reporter.event(
        "contexts-left-out",
        f"The model has a context of {room + params.output_tokens} tokens: prompts of "
        f"{', '.join(map(str, taken))} tokens are timed.",
        asked=list(params.contexts),
        timed=list(taken),
    )
    return taken


def graphs_in_turns(
    params: OnnxSpeedParams, contexts: tuple[int, ...], graphs: Mapping[str, GraphProcess], reporter: Reporter
) -> SpeedValue:
    """Time both at every length of prompt, one right after the other, the other one first in the next round.

    Args:
        params: Rounds and tokens to generate.
        contexts: Tokens of the prompts.
        graphs: `baseline` and `artifact`, loaded.
        reporter: Receives progress.
    """
    vocabulary = min(graph.loaded.vocab_size for graph in graphs.values())
    paces: dict[tuple[str, int], list[Pace]] = {(w, c): [] for w in graphs for c in contexts}
    with reporter.track("Timing prompts", (params.rounds + 1) * len(paces)) as advance:
        for number in range(params.rounds + 1):
            order = sorted(graphs, reverse=number % 2 == 1)
            for context in contexts:
                (prompt,) = draw_prompts(number, 1, context, vocabulary)
                for who in order:
                    timing = graphs[who].time(prompt, params.output_tokens)
                    if number > 0:  # the first round warms both up
                        paces[who, context].append(pace_of(timing))
                    advance(1)
    return SpeedValue(
        computed_on=machine_name(params.session.provider),
        prompt_tokens=max(contexts),
        output_tokens=params.output_tokens,
        rounds=params.rounds,
        at=tuple(
            _at(context, paces["baseline", context], paces["artifact", context]) for context in contexts
        ),
    )


def _at(context: int, baseline: list[Pace], artifact: list[Pace]) -> SpeedAt:
    return SpeedAt(
        concurrency=1,
        prompt_tokens=context,
        baseline=_median(baseline),
        artifact=_median(artifact),
        speedup={
            metric: tuple(speedup(metric, b, a) for b, a in zip(baseline, artifact, strict=True))
            for metric in SPEED_METRICS
        },
    )


def _median(paces: list[Pace]) -> Pace:
    return Pace(**{metric: median(getattr(pace, metric) for pace in paces) for metric in SPEED_METRICS})


def _memory(graph: GraphProcess, file_bytes: int) -> MemoryOf:
    used, idle = graph.memory(), graph.loaded.idle
    return MemoryOf(
        file_bytes=file_bytes,
        idle_bytes=idle.peak,
        peak_bytes=used.peak,
        resident_bytes=used.resident,
        load_seconds=graph.loaded.seconds,
    )
