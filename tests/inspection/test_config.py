import json
from pathlib import Path

import pytest

from quantflow.errors import SourceError
from quantflow.inspection.tensors import check_tensors
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_attention_heads", 8),
        ("num_key_value_heads", 0),
        ("head_dim", 0),
        ("head_dim", 10**12),
        ("vocab_size", 0),
        ("vocab_size", 401),
        ("hidden_act", "junk"),
        ("intermediate_size", "wide"),
    ],
)
def test_a_config_that_is_not_that_of_the_weights_is_refused(tmp_path: Path, key: str, value: object) -> None:
    folder = random_model(tmp_path / "model", tiny_config())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: value}))
    reader = SafetensorsReader(folder)
    with pytest.raises(SourceError):
        check_tensors(StreamedDecoder(folder, reader), reader, RecordingReporter())
