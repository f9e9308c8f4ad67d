"""Two texts at once, one of them shorter: what torch says of them, what a graph says."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from quantflow.formats.onnx.params import GRAPH_FILE

TOKENS, SHORTER = 24, 17
Ids = NDArray[np.int64]


def not_at_all() -> tuple[Ids, Ids]:
    """Two texts of one length and their attention mask, `[2, tokens]` each."""
    ids = np.random.default_rng(5).integers(3, 400, (2, TOKENS))
    return ids, np.ones_like(ids)


def on_the_left() -> tuple[Ids, Ids]:
    """The second text is shorter, and filled up in front."""
    ids, mask = not_at_all()
    ids[1, :-SHORTER], mask[1, :-SHORTER] = 0, 0
    return ids, mask


def on_the_right() -> tuple[Ids, Ids]:
    """The second text is shorter, and filled up behind."""
    ids, mask = not_at_all()
    ids[1, SHORTER:], mask[1, SHORTER:] = 0, 0
    return ids, mask


def in_torch(model: Path, ids: Ids, mask: Ids) -> NDArray[np.float32]:
    """Logits `[2, tokens, vocab]` by the model itself."""
    load: Any = AutoModelForCausalLM.from_pretrained
    with torch.no_grad():
        out = load(model, dtype=torch.float32)(torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
    logits: NDArray[np.float32] = out.logits.numpy()
    return logits


def whole(folder: Path, ids: Ids, mask: Ids) -> NDArray[np.float32]:
    """Logits `[2, tokens, vocab]` by a graph, all tokens at once."""
    return in_pieces(folder, ids, mask, ())


def in_pieces(folder: Path, ids: Ids, mask: Ids, cuts: tuple[int, ...]) -> NDArray[np.float32]:
    """The same, the tokens cut at places, and each piece given with the cache of those before it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(
        str(folder / GRAPH_FILE), options, providers=["CPUExecutionProvider"]
    )
    inputs = {given.name: given.shape for given in session.get_inputs()}
    past = {
        name: np.zeros((len(ids), shape[1], 0, 16), dtype=np.float32)
        for name, shape in inputs.items()
        if name.startswith("past")
    }
    pieces, begin = [], 0
    for end in (*cuts, ids.shape[1]):
        given = {"input_ids": ids[:, begin:end], "attention_mask": mask[:, :end], **past}
        if "position_ids" in inputs:
            given["position_ids"] = np.repeat(np.arange(begin, end)[None], len(ids), 0)
        names = [name.replace("past_key_values", "present") for name in past]
        logits, *present = session.run(["logits", *names], given)
        past = dict(zip(past, present, strict=True))
        pieces.append(logits)
        begin = end
    return np.concatenate(pieces, axis=1)
