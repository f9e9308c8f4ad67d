"""What an artifact says otherwise than its baseline, in a few sentences."""

from quantflow.gate.result import CriterionResult
from quantflow.measure.generated import GenerationValue, Pair
from quantflow.report.figures import count, percent
from quantflow.report.model import ArtifactReport, Report
from quantflow.report.wording import Wording
from quantflow.tasks.value import RecoveryValue, TaskValue


def changed(artifact: ArtifactReport) -> bool:
    """Whether anything that the artifact said, or would have said next, was compared with its baseline."""
    measured, divergence = artifact.measurements, artifact.divergence
    said = measured is not None and (measured.generation is not None or bool(measured.tasks))
    return said or (divergence is not None and bool(divergence.worst))


def generation_line(value: GenerationValue, words: Wording) -> str:
    """How many prompts are answered alike, beside the baseline with itself, and where the others part."""
    ends = {"low": percent(value.ci_low), "high": percent(value.ci_high)}
    figures = {"share": percent(value.identical), "prompts": count(value.prompts), **ends}
    sentences = [words("changes.identical", **figures)]
    if value.noise_floor is not None:
        sentences.append(words("changes.floor", share=percent(value.noise_floor)))
    if value.first_divergence is not None:
        sentences.append(words("changes.divergence", place=f"{value.first_divergence:g}"))
    sentences.append(words("changes.similarity", share=percent(value.similarity)))
    return " ".join(sentences)


def pair_line(pair: Pair, words: Wording) -> str:
    """Which prompt, and where and how clearly the texts part."""
    line = words("changes.prompt", document=count(pair.document), slice=pair.slice)
    if pair.diverges_at is not None:
        line += words("changes.at", place=count(pair.diverges_at))
    if pair.margin is not None:
        line += words("changes.margin", margin=f"{pair.margin:.3g}")
    return line + words("list.colon")


def task_line(task: str, value: TaskValue, words: Wording) -> str:
    """A task's two scores, and how many items went either way."""
    return words(
        "changes.task",
        task=task,
        metric=value.metric,
        baseline=percent(value.baseline),
        value=percent(value.value),
        n=count(value.n),
        lost=count(value.lost),
        gained=count(value.gained),
    )


def recovery_line(value: RecoveryValue, words: Wording) -> str:
    """How much of the tasks' scores is kept in all."""
    figures = {"value": percent(value.value), "n": count(value.n)}
    line = words.counted("changes.recovery", value.tasks, count(value.tasks), **figures)
    if value.ci_low is None or value.ci_high is None:
        return line
    ends = {"low": percent(value.ci_low), "high": percent(value.ci_high)}
    return " ".join((line, words("changes.recovery_interval", **ends)))


def flips_line(report: Report, criterion: CriterionResult, words: Wording) -> str:
    """How many items a task's criterion lost and gained; empty for other criteria."""
    if criterion.name != "tasks":
        return ""
    measured = next((a.measurements for a in report.artifacts if a.name == criterion.artifact), None)
    value = measured.tasks.get(criterion.slice) if measured else None
    if value is None:
        return ""
    return words("changes.flipped", lost=count(value.lost), gained=count(value.gained))
