"""A report as metrics in Prometheus' text format, for the textfile collector of its node exporter."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from quantflow.gate.verdict import Verdict
from quantflow.report.model import Report

Samples = Iterable[tuple[Mapping[str, str], float | None]]


def prometheus_text(report: Report) -> str:
    """Metrics of a recipe's last run; equal reports give equal text.

    Run ids are no labels: each would make time series of its own.
    """
    recipe = {"recipe": report.recipe}
    finished = report.provenance.get("finished")
    ended = datetime.fromisoformat(finished).timestamp() if isinstance(finished, str) else None
    seconds = report.provenance.get("seconds")
    artifacts = [(recipe | {"artifact": a.name, "format": a.format}, a) for a in report.artifacts]
    criteria = [
        (recipe | {"artifact": c.artifact, "criterion": c.name, "metric": c.metric, "slice": c.slice}, c)
        for c in report.criteria
    ]
    run_verdict = _verdicts([(recipe, report.verdict)])
    artifact_verdict = _verdicts((labels, a.verdict) for labels, a in artifacts)
    criterion_verdict = _verdicts((labels, c.verdict) for labels, c in criteria)
    families: tuple[tuple[str, str, Samples], ...] = (
        ("run_verdict", "1 for the verdict of the recipe's last run, else 0.", run_verdict),
        ("run_exit_code", "Exit code of the last run: 0 is a pass.", [(recipe, report.exit_code)]),
        ("run_finished_timestamp_seconds", "When the last run finished.", [(recipe, ended)]),
        ("run_duration_seconds", "How long it took.", [(recipe, _number(seconds))]),
        ("run_events", "Events of the last run.", [(recipe, len(report.events))]),
        ("artifact_verdict", "1 for an artifact's verdict, else 0.", artifact_verdict),
        ("artifact_size_bytes", "Size of an artifact's files.", [(k, a.bytes) for k, a in artifacts]),
        ("criterion_verdict", "1 for a criterion's verdict, else 0.", criterion_verdict),
        ("criterion_change", "What is held against the margin.", [(k, c.delta) for k, c in criteria]),
        ("criterion_change_low", "Lower end of its 90 % interval.", [(k, c.ci_low) for k, c in criteria]),
        ("criterion_change_high", "Upper end of its 90 % interval.", [(k, c.ci_high) for k, c in criteria]),
        ("criterion_margin", "The margin.", [(k, c.margin) for k, c in criteria]),
    )
    return "".join(_family(f"quantflow_{name}", text, samples) for name, text, samples in families)


def _verdicts(given: Iterable[tuple[Mapping[str, str], Verdict]]) -> Samples:
    return [
        ({**labels, "verdict": verdict.value}, float(verdict is found))
        for labels, found in given
        for verdict in Verdict
    ]


def _family(name: str, text: str, samples: Samples) -> str:
    lines = [
        f"{name}{{{_labels(labels)}}} {float(value)!r}" for labels, value in samples if value is not None
    ]
    return "\n".join([f"# HELP {name} {text}", f"# TYPE {name} gauge", *lines, ""]) if lines else ""


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
