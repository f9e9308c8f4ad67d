"""The leakage stage: which items of tasks calibration text has."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from quantflow.data.documents import load_documents
from quantflow.data.encode import Encoder
from quantflow.data.windows import CALIBRATED_FILE, load_windows
from quantflow.leakage.find import Passages, near_documents
from quantflow.leakage.params import LeakageParams
from quantflow.leakage.record import LeakedItem, TaskLeakage, save_leakage
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint
from quantflow.tasks.record import TaskItem, load_tasks

SHOWN = 20
"""Leaked items of a task that are named."""


def run(params: LeakageParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Look for what tasks ask in the documents that calibration windows are packed from.

    An item counts where any text of its document has a passage that a calibration document has word for word,
    or all its texts together are nearly the same as one, as near duplicates of documents are.

    Args:
        params: Nothing.
        inputs: Finished outputs of `source`, `data` and `tasks`, the baseline's.
        output: Folder for leakage.json.
        reporter: Receives progress, and an event for each task with an item that calibration text has.

    Raises:
        SourceError: The tokenizer cannot be loaded.
    """
    windows, documents = load_windows(inputs["data"] / CALIBRATED_FILE), load_documents(inputs["data"])
    ids = [documents[i].id for i in windows.document]
    texts = Encoder(load_checkpoint(inputs["source"]).folder).texts(list(windows))
    passages = Passages(texts)
    found: dict[str, TaskLeakage] = {}
    tasks = load_tasks(inputs["tasks"])
    with reporter.track("looking for tasks' items in calibration text", len(tasks)) as advance:
        for name, task in tasks.items():
            found[name] = task_leakage(task.items, texts, ids, passages)
            advance(1)
    save_leakage(output, found)
    for name, own in found.items():
        if own.leaked:
            reporter.event(
                "task-items-in-calibration",
                f"Calibration text has {own.leaked} of the {own.items} items of {name} that were run: what "
                "is calibrated on the questions is judged too kindly by them.",
                task=name,
                items=own.leaked,
                first=own.shown[0].item,
                document=own.shown[0].document,
            )


def task_leakage(
    items: Sequence[TaskItem], texts: Sequence[str], ids: Sequence[str], passages: Passages
) -> TaskLeakage:
    """The items of one task that calibration text has.

    Args:
        items: The task's.
        texts: Text of each calibration document.
        ids: Its id.
        passages: Passages of the same.
    """
    near = near_documents(["\n".join(item.fields) for item in items], texts)
    leaked: list[LeakedItem] = []
    for item, like in zip(items, near, strict=True):
        word_for_word = next((at for text in item.fields if (at := passages.find(text)) is not None), None)
        if word_for_word is not None:
            leaked.append(LeakedItem(item=item.id, document=ids[word_for_word], how="passage"))
        elif like is not None:
            leaked.append(LeakedItem(item=item.id, document=ids[like], how="near"))
    return TaskLeakage(
        items=len(items),
        leaked=len(leaked),
        passages=sum(one.how == "passage" for one in leaked),
        shown=tuple(leaked[:SHOWN]),
    )
