"""What the scan is held against: one full forward for each unit, and errors of weights and outputs."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from quantflow.measure.divergence import kl_divergence
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.head import head_module
from quantflow.model.replaced import forwards_replaced
from quantflow.model.units import HEAD
from quantflow.quantize.int8 import int8_dequantized
from quantflow.sensitivity.exact import block_of_unit
from quantflow.sensitivity.int8_swap import Int8Swaps
from quantflow.sensitivity.measured import Key
from quantflow.sensitivity.methods import Ground
from quantflow.sensitivity.swap import BlockSwaps, WeightSwaps, lossless


@dataclass(frozen=True)
class Bench:
    """What all methods of one precision work on."""

    ground: Ground
    checkpoint: Path
    folder: Path

    @property
    def decoder(self) -> StreamedDecoder:
        """The model."""
        return self.ground.boundaries.decoder


@torch.no_grad()
def naive_kl(bench: Bench, every: int) -> dict[Key, float]:
    """Mean KL of one full forward for each unit, in a model of its own; kept in a file unit by unit.

    Args:
        bench: What to work on.
        every: One of every so many units is run.
    """
    path = bench.folder / "naive.json"
    known: dict[str, float] = json.loads(path.read_text()) if path.is_file() else {}
    load: Any = AutoModelForCausalLM.from_pretrained
    model = load(bench.checkpoint, dtype=torch.float32).eval()
    text, blocks = bench.ground.boundaries.text, block_of_unit(bench.ground.boundaries)
    windows = [torch.from_numpy(window.astype("int64"))[None] for window in text.windows]
    reference = [model(window).logits[0, :-1].log_softmax(-1) for window in windows]
    result = {}
    for key in bench.ground.keys[::every]:
        unit, precision = key
        if unit not in known:
            prefix, _, short = unit.rpartition(".")
            codes = bench.ground.codes[precision]
            swaps = codes.open_head() if unit == HEAD else codes.open(blocks[unit])
            assert swaps is not None
            names = (HEAD,) if unit == HEAD else bench.decoder.family.units[short]
            with ExitStack() as stack:
                for name in names:
                    linear = model.get_submodule(f"{prefix}.{name}".removeprefix("."))
                    stack.enter_context(forwards_replaced([linear], swaps.swap(name, linear)))
                kl = [
                    kl_divergence(log_p, model(window).logits[0, :-1].log_softmax(-1))
                    for window, log_p in zip(windows, reference, strict=True)
                ]
            known[unit] = float(torch.cat(kl).mean())
            path.write_text(json.dumps(known))
        result[key] = known[unit]
    return result


@torch.no_grad()
def squared_errors(bench: Bench) -> dict[Key, tuple[float, float]]:
    """Squared error of every unit's weights, and of its outputs, both summed over its linears."""
    boundaries, family = bench.ground.boundaries, bench.decoder.family
    result: dict[Key, tuple[float, float]] = {}
    for index in range(bench.decoder.num_blocks):
        prefix = family.block_name(index)
        with bench.decoder.loaded_block(index) as block:
            heard: dict[str, list[torch.Tensor]] = {name: [] for name in family.linears}
            hooks = [
                block.get_submodule(name).register_forward_pre_hook(_listener(own))
                for name, own in heard.items()
            ]
            for number in range(len(boundaries.text.batches)):
                boundaries.call(index, number).run(block, boundaries.state(index, number))
            for hook in hooks:
                hook.remove()
            for precision, codes in bench.ground.codes.items():
                swaps = codes.open(index)
                for unit in swaps.units:
                    parts = [(n, block.get_submodule(n), heard[n]) for n in family.units[unit]]
                    result[f"{prefix}.{unit}", precision] = _error(swaps, parts)
    with bench.decoder.loaded_around(), bench.decoder.loaded_head():
        last = bench.decoder.num_blocks
        finals = [bench.decoder.final(boundaries.state(last, n)) for n in range(len(boundaries.text.batches))]
        for precision, codes in bench.ground.codes.items():
            head = codes.open_head()
            if head is not None:
                result[HEAD, precision] = _error(head, [(HEAD, head_module(bench.decoder), finals)])
    return result


def _error(
    swaps: BlockSwaps, linears: Sequence[tuple[str, torch.nn.Module, list[torch.Tensor]]]
) -> tuple[float, float]:
    """Squared error of the weights and of the outputs of one unit's linears on their inputs."""
    weight = output = 0.0
    for name, linear, inputs in linears:
        own = linear.get_parameter("weight")
        if isinstance(swaps, WeightSwaps):
            stored = swaps.weight(name)
        else:
            assert isinstance(swaps, Int8Swaps)
            # These codes are the quantize stage's, into which nothing is folded.
            stored = int8_dequantized(swaps.values.linears[f"{swaps.prefix}.{name}".removeprefix(".")])
        weight += float((stored - own).square().sum())
        changed, before = swaps.swap(name, linear), lossless(name, linear)
        output += sum(float((changed(x) - before(x)).square().sum()) for x in inputs)
    return weight, output


def _listener(inputs: list[torch.Tensor]) -> Callable[[Any, tuple[torch.Tensor, ...]], None]:
    return lambda module, args: inputs.append(args[0])
