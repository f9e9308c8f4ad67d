"""One task on one model: lm-eval builds prompts and scores answers, QuantFlow runs the model and pairs."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lm_eval.api.metrics import mean, nanmean
from lm_eval.evaluator import evaluate

from quantflow.errors import QuantFlowError, TaskError
from quantflow.tasks.adapter import RuntimeLM
from quantflow.tasks.draw import draw_items
from quantflow.tasks.load import clusters_of, load_task, quiet
from quantflow.tasks.params import TaskListParams, TaskSpec
from quantflow.tasks.record import TaskItem, TaskRecord

# Characters of an answer that are kept to be read.
LONGEST_SAID = 400
# Metrics that a guess among the answers scores by chance.
CHOICE_METRICS = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")


def run_task(
    spec: TaskSpec, params: TaskListParams, model: RuntimeLM, most_items: int | None = None
) -> TaskRecord:
    """Run a task.

    Args:
        spec: Which.
        params: Folder of local tasks, and the seed that items are drawn by.
        model: The model.
        most_items: Run no more than this of the items drawn.

    Raises:
        TaskError: It cannot be loaded or scored; it says which.
    """
    with quiet(may_execute=spec.execute_code):
        tasks = load_task(spec, params.tasks_dir)
        clusters = {name: clusters_of(task, spec, name) for name, task in tasks.items()}
        drawn = _drawn(clusters, spec, params.seed, most_items)
        try:
            samples = _samples(spec, tasks, drawn, model)
        except QuantFlowError as error:
            if isinstance(error, TaskError) and not error.where:
                raise TaskError(error.message, where=spec.name, hint=error.hint) from error
            raise
        except Exception as cause:  # a task is a program: it may fail in any way, half-way too
            raise TaskError(
                f"the task failed: {type(cause).__name__}: {cause}",
                where=spec.name,
                hint="Batches that were finished are kept; nothing is judged on a part of a task.",
            ) from cause
        metric, name, chosen_filter = _metric(spec, tasks, samples)
        items = [
            _item(task, sample, clusters[task][sample["doc_id"]], metric, spec)
            for task in tasks
            for sample in samples[task]
            if sample["filter"] == chosen_filter
        ]
    first = next(iter(tasks.values()))
    return TaskRecord(
        name=spec.name,
        metric=name,
        higher_is_better=_direction(spec, tasks, metric),
        chance=_chance(tasks, samples, metric),
        num_fewshot=int(first.get_config("num_fewshot")),
        chat_template=spec.chat_template,
        version=str(first.VERSION),
        items_in_task=sum(map(len, clusters.values())),
        items=tuple(items),
        batches=hashlib.sha256("".join(model.work.keys).encode()).hexdigest(),
    )


def _drawn(
    clusters: Mapping[str, Sequence[str]], spec: TaskSpec, seed: int, most: int | None
) -> Mapping[str, list[int]]:
    """Task → places of the items drawn, ascending: over a whole group, larger tasks give more."""
    places = [(task, place) for task, own in clusters.items() for place in range(len(own))]
    flat = [cluster for own in clusters.values() for cluster in own]
    chosen = draw_items(flat, spec.limit, seed, spec.name)
    if most is not None and most < len(chosen):
        chosen = [chosen[place] for place in draw_items([flat[i] for i in chosen], most, seed, spec.name)]
    drawn: dict[str, list[int]] = {task: [] for task in clusters}
    for index in chosen:
        task, place = places[index]
        drawn[task].append(place)
    return drawn


def _samples(
    spec: TaskSpec, tasks: Mapping[str, Any], drawn: Mapping[str, list[int]], model: RuntimeLM
) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    found: dict[str, Sequence[Mapping[str, Any]]] = {}
    for name, task in tasks.items():
        if not drawn[name]:
            found[name] = ()
            continue
        results = evaluate(
            model,
            {"tasks": {name: task}, "groups": {}},
            # Looking each document up among all of a large task takes lm-eval minutes.
            samples={name: drawn[name]} if len(drawn[name]) < len(task.eval_docs) else None,
            bootstrap_iters=0,
            log_samples=True,
            apply_chat_template=spec.chat_template,
            fewshot_as_multiturn=spec.chat_template,
            confirm_run_unsafe_code=spec.execute_code,
        )
        samples = results["samples"][name]
        expected = len(drawn[name]) * len({sample["filter"] for sample in samples})
        if len(samples) != expected:
            raise TaskError(f"{len(samples)} scores came back where {expected} were asked for")
        found[name] = samples
    return found


def _metric(
    spec: TaskSpec, tasks: Mapping[str, Any], samples: Mapping[str, Sequence[Mapping[str, Any]]]
) -> tuple[str, str, str]:
    """The metric, its name with the filter where there are several, and the filter."""
    first, task = next((samples[name], task) for name, task in tasks.items() if samples[name])
    filters = list(dict.fromkeys(sample["filter"] for sample in first))
    how = task.aggregation()
    # As in lm-eval, a metric that a task gives without saying how it is summed up is a mean.
    means = [m for m in first[0]["metrics"] if how.get(m, mean) in (mean, nanmean)]
    asked, _, asked_filter = (spec.metric or "").partition(",")
    metric = asked or (means[0] if means else "")
    if metric not in means or (asked_filter and asked_filter not in filters):
        choices = [f"{m},{f}" if len(filters) > 1 else m for m in means for f in filters]
        raise TaskError(
            f"it has no metric {spec.metric!r} that is a mean over items"
            if spec.metric
            else "it has no metric that is a mean over items",
            where=spec.name,
            hint=f"Say metric: {' or '.join(choices)}." if choices else "",
        )
    chosen = asked_filter or filters[0]
    return metric, f"{metric},{chosen}" if len(filters) > 1 else metric, chosen


def _direction(spec: TaskSpec, tasks: Mapping[str, Any], metric: str) -> bool:
    told = [task.higher_is_better() for task in tasks.values()]
    # A metric function may give several figures (pass@1, pass@10): the direction is the function's.
    known = {direction for own in told for direction in ([own[metric]] if metric in own else own.values())}
    if len(known) != 1 or None in known:
        raise TaskError(
            f"it does not say whether more of {metric} is better",
            where=spec.name,
            hint="Add higher_is_better to the metric in the task's YAML.",
        )
    return bool(known.pop())


def _chance(
    tasks: Mapping[str, Any], samples: Mapping[str, Sequence[Mapping[str, Any]]], metric: str
) -> float:
    """What guessing scores: one in the number of answers; nothing where text is to be found."""
    guesses = []
    for name, task in tasks.items():
        chooses = task.OUTPUT_TYPE == "multiple_choice" and metric in CHOICE_METRICS
        for sample in samples[name]:
            answers = len({argument[1] for argument in sample["arguments"]}) if chooses else math.inf
            guesses.append(1 / answers)
    return math.fsum(guesses) / len(guesses)


def _item(task: str, sample: Mapping[str, Any], cluster: str, metric: str, spec: TaskSpec) -> TaskItem:
    place, value = sample["doc_id"], sample[metric]
    if isinstance(value, str) or not hasattr(value, "__float__") or not math.isfinite(float(value)):
        raise TaskError(
            f"item {place} scores {value!r} in {metric}, which is no number to take a mean of",
            where=spec.name,
        )
    asked = [sample["doc_hash"], sample["target_hash"], sample["arguments"]]
    return TaskItem(
        id=f"{task}/{place}",
        hash=hashlib.sha256(json.dumps(asked, default=str, sort_keys=True).encode()).hexdigest(),
        cluster=cluster,
        value=float(value),
        said=_said(sample)[:LONGEST_SAID],
        wanted=str(sample["target"])[:LONGEST_SAID],
        fields=tuple(_texts(sample["doc"])),
    )


def _texts(value: object) -> Iterator[str]:
    """All texts of a document, in order; empty ones are none."""
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for part in value:
            yield from _texts(part)


def _said(sample: Mapping[str, Any]) -> str:
    """The text that was generated, or the answer that was found likeliest."""
    answers, responses = sample["arguments"], sample["filtered_resps"]
    if isinstance(responses[0], str):
        return str(responses[0])
    if len(answers) > 1:
        logprobs = [response[0] for response in responses]
        return str(answers[logprobs.index(max(logprobs))][1]).strip()
    return json.dumps(responses[0], default=str)
