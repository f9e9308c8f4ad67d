"""The quickstart model on benchmark items: our adapter and lm-eval's own `hf` model agree.

Per token to 1e-4 nats, and in every accuracy. `QUANTFLOW_PARITY_ITEMS` says how many items of each task are
run, `QUANTFLOW_PARITY_MODEL` names a folder with the model where it need not be fetched.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.evaluator import evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoModelForCausalLM

from quantflow.errors import SourceError
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.resident import resident, room_for_weights
from quantflow.model.tokenizer import load_tokenizer
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.digest import file_digest
from quantflow.source.checkpoint import load_checkpoint
from quantflow.source.identify import source_params
from quantflow.source.stage import run
from quantflow.source.uri import parse
from quantflow.tasks.adapter import RuntimeLM
from quantflow.tasks.batches import Batches
from quantflow.tasks.scoring import TorchText
from tests.measure.test_reference_perplexity import MODEL, SHARED
from tests.reporting import RecordingReporter

ITEMS = int(os.environ.get("QUANTFLOW_PARITY_ITEMS", "200"))
PER_TOKEN = 1e-4
CHOICES = ("arc_easy", "piqa", "openbook_qa", "winogrande")
LAMBADA = SHARED / "data" / "lambada" / "lambada_test.jsonl"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LAMBADA.is_file(), reason=f"needs benchmark items beside {LAMBADA}"),
]


def rows_of(name: str) -> list[dict[str, Any]]:
    """Items as multiple choice, or for LAMBADA as context and last word."""
    if name == "lambada":
        lines = LAMBADA.read_text(encoding="utf-8").splitlines()[:ITEMS]
        texts = [json.loads(line)["text"].rpartition(" ") for line in lines]
        return [{"context": context, "answer": word} for context, _, word in texts]
    path = SHARED / "data" / "tasks" / f"{name}.jsonl"
    found = []
    for line in path.read_text(encoding="utf-8").splitlines()[:ITEMS]:
        row = json.loads(line)
        if "context_options" in row:  # which context a continuation fits is asked the other way round
            choices = [f"{context} {row['continuation']}" for context in row["context_options"]]
            found.append({"context": "Which is true?", "choices": choices, "gold": row["gold"]})
        else:
            found.append({"context": row["query"], "choices": row["choices"], "gold": row["gold"]})
    return found


def task_of(folder: Path, name: str) -> dict[str, Any]:
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows_of(name)), encoding="utf-8")
    chosen: dict[str, Any] = {
        "output_type": "multiple_choice",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{gold}}",
        "metric_list": [
            {"metric": metric, "aggregation": "mean", "higher_is_better": True}
            for metric in ("acc", "acc_norm")
        ],
    }
    read: dict[str, Any] = {
        "output_type": "loglikelihood",
        "doc_to_target": "{{' ' + answer}}",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    return {
        "task": f"parity_{name}",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "doc_to_text": "{{context}}",
        **(read if name == "lambada" else chosen),
    }


def checkpoint(folder: Path) -> Path:
    named = os.environ.get("QUANTFLOW_PARITY_MODEL")
    if named:
        return Path(named)
    run(source_params(parse(MODEL, folder), None, file_digest), {}, folder, RecordingReporter())
    return load_checkpoint(folder).folder


def results(model: Any, tasks: list[dict[str, Any]]) -> Any:
    loaded = TaskManager(include_defaults=False).load([dict(task) for task in tasks])
    return evaluate(model, loaded, bootstrap_iters=0, log_samples=True)


def test_log_likelihoods_and_accuracies_are_lm_evals(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    folder = checkpoint(tmp_path / "source")
    tasks = [task_of(tmp_path, name) for name in (*CHOICES, "lambada")]
    decoder = StreamedDecoder(folder, SafetensorsReader(folder))
    tokenizer = load_tokenizer(folder, SourceError)
    with resident(decoder, room_for_weights(decoder.device)) as stays:
        work = Batches(RecordingReporter(), "parity", "running")
        text_model = TorchText(decoder, 2048, SourceError, stays=stays)
        ours = results(RuntimeLM(text_model, tokenizer, work), tasks)
    load: Any = AutoModelForCausalLM.from_pretrained
    plain = HFLM(
        pretrained=load(folder, dtype=torch.float32), tokenizer=tokenizer, batch_size=8, device="cpu"
    )
    theirs = results(plain, tasks)
    worst = 0.0
    for task in theirs["results"]:
        for metric, value in theirs["results"][task].items():
            if metric.startswith("acc"):
                assert ours["results"][task][metric] == value, (task, metric)
        for mine, other in zip(ours["samples"][task], theirs["samples"][task], strict=True):
            for (_, answer), mine_one, other_one in zip(
                other["arguments"], mine["filtered_resps"], other["filtered_resps"], strict=True
            ):
                tokens = max(1, len(tokenizer.encode(answer, add_special_tokens=False)))
                worst = max(worst, abs(mine_one[0] - other_one[0]) / tokens)
    print(f"{len(tasks)} tasks of {ITEMS} items: largest difference {worst:.2e} nats per token")
    assert worst < PER_TOKEN
