"""What the builder's graphs take of several texts at once, and what is refused; torch is the judge."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantflow.errors import QuantizationError
from quantflow.formats.onnx.agreement import require_agreement
from quantflow.formats.onnx.base import load_base
from quantflow.formats.onnx.graph_file import GraphFile, write_graph
from quantflow.formats.onnx.params import GENAI_CONFIG, GRAPH_FILE
from tests.formats.onnx.batches import in_pieces, in_torch, not_at_all, on_the_left, on_the_right, whole
from tests.formats.onnx.conftest import Ground


@pytest.mark.parametrize("padding", [not_at_all, on_the_right])
def test_a_batch_in_one_piece_says_what_torch_says(ground: Ground, padding: Any) -> None:
    ids, mask = padding()
    logits = whole(load_base(ground.base).folder, ids, mask)
    assert np.abs(logits - in_torch(ground.model, ids, mask))[mask.astype(bool)].max() < 1e-3


def test_padding_on_the_left_is_not_what_groupqueryattention_computes(ground: Ground) -> None:
    ids, mask = on_the_left()
    differs = np.abs(whole(load_base(ground.base).folder, ids, mask) - in_torch(ground.model, ids, mask))
    assert differs[0].max() < 1e-3
    assert differs[1][mask[1].astype(bool)].max() > 0.1


def test_a_batch_with_a_past_is_taken_token_by_token_and_refused_in_chunks(ground: Ground) -> None:
    folder, (ids, mask) = load_base(ground.base).folder, not_at_all()
    expected = in_torch(ground.model, ids, mask)
    token_by_token = in_pieces(folder, ids, mask, tuple(range(20, 24)))
    assert np.abs(token_by_token - expected).max() < 1e-3
    with pytest.raises(Exception, match="batch"):
        in_pieces(folder, ids, mask, (9,))


def test_a_graph_that_says_something_else_than_the_model_is_not_used(ground: Ground, tmp_path: Path) -> None:
    folder = load_base(ground.base).folder
    work = tmp_path / "work"
    work.mkdir()
    assert require_agreement(folder, ground.model, "the builder", work) < 1e-3
    graph = GraphFile(folder / GRAPH_FILE)
    norm = "model.layers.1.input_layernorm.weight"
    write_graph(graph, {norm: lambda: 1.05 * graph.read(norm)}, tmp_path)
    (tmp_path / GENAI_CONFIG).write_bytes((folder / GENAI_CONFIG).read_bytes())
    with pytest.raises(QuantizationError, match="in one piece, a logit differs by"):
        require_agreement(tmp_path, ground.model, "the builder", work)
    assert [path.name for path in work.iterdir()] == ["onnxruntime.log"]
