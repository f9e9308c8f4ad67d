"""Prompts for generated text, and what a model answers to them, in whatever runtime."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quantflow.data.documents import load_documents
from quantflow.data.windows import Windows
from quantflow.errors import DataError
from quantflow.measure.evaluation import load_evaluation
from quantflow.measure.generation_record import Generated, GenerationRecord
from quantflow.measure.params import PromptParams
from quantflow.model.end_tokens import end_tokens
from quantflow.pipeline.events import Reporter
from quantflow.tasks.batches import Batches, TextModel
from quantflow.tasks.draw import draw_items

Prompts = Sequence[tuple[int, Sequence[int]]]
"""Document and token ids of each."""


def answers(
    model: TextModel,
    files: Path,
    tokenizer: Any,
    prompts: Prompts,
    slices: Sequence[str] | Mapping[int, str],
    params: PromptParams,
    work: Batches,
) -> tuple[Generated, ...]:
    """Let a model go on with prompts; it stops where its own files say that a text ends.

    Args:
        model: The model.
        files: Folder of its config and tokenizer.
        tokenizer: Its tokenizer.
        prompts: What it goes on with.
        slices: Document → slice.
        params: How long answers may be.
        work: Keeps what was finished.
    """
    ends = end_tokens(files, tokenizer)
    found = model.go_on(
        [ids for _, ids in prompts], params.output_tokens, lambda tokens: tokens[-1] in ends, work
    )
    return tuple(
        Generated(
            document=document,
            slice=slices[document],
            prompt=tuple(ids),
            prompt_text=tokenizer.decode(list(ids)),
            tokens=continuation.tokens,
            margins=continuation.margins,
            text=tokenizer.decode(list(continuation.tokens)),
        )
        for (document, ids), continuation in zip(prompts, found, strict=True)
    )


def answered_twice(
    usual: TextModel,
    again: TextModel,
    files: Path,
    tokenizer: Any,
    data_output: Path,
    params: PromptParams,
    reporter: Reporter,
) -> GenerationRecord:
    """What the lossless model answers, and whether it does so again when it is run in another way.

    Args:
        usual: The model.
        again: The same, run in another way.
        files: Folder of its config and tokenizer.
        tokenizer: Its tokenizer.
        data_output: Finished output of the data stage.
        params: How many prompts, and how long.
        reporter: Receives progress and events, and keeps what interruptions would cost.

    Raises:
        DataError: No evaluation document is long enough to make a prompt of, or the context is too short.
    """
    prompts = choose_prompts(load_evaluation(data_output), params)
    if len(prompts) < params.prompts:
        reporter.event(
            "fewer-prompts",
            f"The evaluation documents give {len(prompts)} prompts of the {params.prompts} asked for.",
            prompts=len(prompts),
            asked=params.prompts,
        )
    room = getattr(usual.config, "max_position_embeddings", None)
    longest = max(len(ids) for _, ids in prompts)
    if room is not None and longest + params.output_tokens > room:
        raise DataError(
            f"prompt and answer take up to {longest + params.output_tokens} tokens, the context has {room}",
            where="gate.generation",
            hint="Lower prompt_tokens or output_tokens.",
        )
    slices = [document.slice for document in load_documents(data_output)]
    samples, others = (
        answers(model, files, tokenizer, prompts, slices, params, generating(reporter, mark))
        for model, mark in ((usual, ""), (again, "-again"))
    )
    same = tuple(a.tokens == b.tokens for a, b in zip(samples, others, strict=True))
    return GenerationRecord(samples=samples, other_batches=same)


def answered_alike(
    model: TextModel,
    files: Path,
    tokenizer: Any,
    baseline: GenerationRecord,
    params: PromptParams,
    reporter: Reporter,
) -> GenerationRecord:
    """What an artifact answers to the baseline's prompts.

    Args:
        model: The artifact.
        files: Folder of its config and tokenizer.
        tokenizer: Its tokenizer.
        baseline: What the baseline answered.
        params: How long answers may be.
        reporter: Receives progress, and keeps what interruptions would cost.
    """
    prompts = [(sample.document, sample.prompt) for sample in baseline.samples]
    slices = {sample.document: sample.slice for sample in baseline.samples}
    work = generating(reporter)
    return GenerationRecord(samples=answers(model, files, tokenizer, prompts, slices, params, work))


def generating(reporter: Reporter, mark: str = "") -> Batches:
    """Where generated batches are kept; `mark` tells runs of one stage apart."""
    return Batches(reporter, f"generation{mark}", "Generating, batches")


def choose_prompts(windows: Windows, params: PromptParams) -> list[tuple[int, tuple[int, ...]]]:
    """Beginnings of evaluation windows, over as many documents as there can be: (document, token ids).

    Args:
        windows: Evaluation windows.
        params: How many and how long; a window that is shorter than twice that gives its first half.

    Raises:
        DataError: None is long enough.
    """
    usable = [(int(d), w.tolist()) for d, w in zip(windows.document, windows, strict=True) if len(w) > 1]
    chosen = draw_items([str(document) for document, _ in usable], params.prompts, params.seed, "generation")
    if not chosen:
        raise DataError("no evaluation document is long enough to make a prompt of", where="gate.generation")
    return [
        (usable[at][0], tuple(usable[at][1][: min(params.prompt_tokens, len(usable[at][1]) // 2)]))
        for at in chosen
    ]
