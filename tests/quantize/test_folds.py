"""The scale that is divided out of a norm is the one its stored weight has room for."""

import torch
from torch import nn

from quantflow.model.families import Fold, family_of
from quantflow.quantize.awq import ScaleChoice
from quantflow.quantize.folds import storable


def test_a_norm_that_would_overflow_or_vanish_where_it_is_stored_is_not_scaled() -> None:
    block, norm = nn.Module(), nn.RMSNorm(5)
    block.add_module("norm", norm)
    weight = norm.get_parameter("weight")
    weight.data.copy_(torch.tensor([1.0, 60_000.0, 3e-7, 0.0, 1.0]))
    choice = ScaleChoice(torch.tensor([2.0, 0.5, 16.0, 4.0, 3.0]), exponent=0.5, loss=0.1)
    found = storable(choice, block, Fold("norm", "qkv"), family_of("llama"), torch.float16)
    third = float(torch.tensor(1 / 3).half())
    torch.testing.assert_close(found.scale, torch.tensor([2.0, 1.0, 1.0, 1.0, 1 / third]), rtol=1e-6, atol=0)
    assert torch.isfinite((weight / found.scale).half()).all()
