"""Units that a scheme's groups do not divide: they get no codes, and nothing is folded for their sake."""

from pathlib import Path

import torch

from quantflow.calibrate.stream import calibrate_blocks
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.block import quantize_block
from quantflow.quantize.params import Scheme
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config

NARROW = Scheme(method="awq", bits=4, group_size=32)
SCHEMES = (
    NARROW,
    Scheme(method="awq", bits=4, group_size=64),
    Scheme(method="gptq", bits=4, group_size=64, symmetric=True),
    Scheme(method="rtn", bits=4, group_size=64),
    Scheme(method="awq+gptq", bits=4, group_size=64),
)


def test_a_unit_that_groups_do_not_divide_is_left_to_those_that_keep_it(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config(intermediate_size=96, num_hidden_layers=1))
    decoder = StreamedDecoder(folder, SafetensorsReader(folder))
    ids = torch.randint(0, 400, (2, 64), generator=torch.Generator().manual_seed(0))
    states = BlockPass(decoder, [ids], PassProgress(RecordingReporter(progress_folder=tmp_path / "progress")))
    for block in calibrate_blocks(states, decoder.family.units, lambda blocks: None):
        results, _ = quantize_block(block, decoder.family, SCHEMES, stored_as=torch.float16)
    down, up = "model.layers.0.mlp.down_proj", "model.layers.0.mlp.up_proj"
    narrow = results[NARROW.id].codes
    assert down in narrow.linears and f"{up}.weight" in narrow.folds
    for scheme in SCHEMES[1:]:
        codes = results[scheme.id].codes
        assert codes.linears.keys() == narrow.linears.keys() - {down}
        assert codes.folds.keys() <= narrow.folds.keys() - {f"{up}.weight"}
