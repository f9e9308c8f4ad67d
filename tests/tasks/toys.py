"""Tasks small enough for the tiny model, in a folder as a team would have one."""

import json
from pathlib import Path
from typing import Any

from quantflow.tasks.params import TasksParams, TaskSpec

OPENINGS = (
    "If the hub is silent, please",
    "The refund takes five",
    "Write to us again at any",
    "We are glad to",
)
ANSWERS = (" change", " working", " time", " help")


def task_folder(folder: Path, *, items: int = 8) -> Path:
    """A folder with three tasks on the same items: what comes next, which of two, and free text."""
    folder.mkdir()
    rows = [
        {
            "passage": f"p{number // 2}",
            "context": f"Dear customer {number}. {OPENINGS[number % 4]}",
            "answer": ANSWERS[number % 4],
            "choices": [ANSWERS[number % 4], ANSWERS[(number + 1) % 4]],
        }
        for number in range(items)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "items.jsonl").write_text(lines, encoding="utf-8")
    common = """\
dataset_path: json
dataset_kwargs: {data_files: {test: items.jsonl}}
test_split: test
doc_to_text: "{{context}}"
target_delimiter: ""
metadata: {version: 1.0, cluster: passage}
"""
    (folder / "next.yaml").write_text(
        f"task: toy_next\noutput_type: loglikelihood\ndoc_to_target: '{{{{answer}}}}'\n{common}"
        "metric_list:\n  - {metric: perplexity, aggregation: perplexity, higher_is_better: false}\n"
        "  - {metric: acc, aggregation: mean, higher_is_better: true}\n",
        encoding="utf-8",
    )
    (folder / "choice.yaml").write_text(
        f"task: toy_choice\noutput_type: multiple_choice\ndoc_to_target: 0\n{common}"
        "doc_to_choice: '{{choices}}'\n"
        "metric_list:\n  - {metric: acc, aggregation: mean, higher_is_better: true}\n",
        encoding="utf-8",
    )
    (folder / "text.yaml").write_text(
        f"task: toy_text\noutput_type: generate_until\ndoc_to_target: '{{{{answer}}}}'\n{common}"
        "generation_kwargs: {max_gen_toks: 5, until: ['.'], do_sample: false}\n"
        "metric_list:\n  - {metric: exact_match, aggregation: mean, higher_is_better: true}\n",
        encoding="utf-8",
    )
    return folder


def tasks_params(folder: Path, *specs: TaskSpec, **changes: Any) -> TasksParams:
    files = {path.name: str(path) for path in sorted(folder.iterdir())}
    settings: dict[str, Any] = {"seed": 0, "device": "cpu", "batch_tokens": 64}
    return TasksParams(tasks=specs, files=files, **{**settings, **changes})
