"""The sequential pass of GPTQ, and which of the codes are passed on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from quantflow.data.windows import CALIBRATION_FILE, PACKED, SELECTION_FILE, make_windows, save_windows
from quantflow.quantize import refine, stage
from quantflow.quantize.codes import block_file, dequantize, load_block
from quantflow.quantize.factor import factorize
from quantflow.quantize.gptq import quantize_gptq
from quantflow.quantize.grid import GridKind
from quantflow.quantize.outcome import load_refine_record
from quantflow.quantize.params import QuantizeParams, RefineParams, Scheme
from quantflow.quantize.search_space import SHRINKAGE
from tests.measure.inputs import source_output
from tests.reporting import RecordingReporter

GPTQ = Scheme(method="gptq", bits=3, group_size=32, symmetric=True)
PARAMS = RefineParams(scheme=GPTQ, keep=(), device="cpu", batch_tokens=64)
BLOCKS = 3


@pytest.fixture
def inputs(tmp_path: Path, tiny_llama: Path) -> dict[str, Path]:
    """Outputs of `source`, `data` and `quantize`."""
    folders = {name: tmp_path / name for name in ("data", "codes")}
    for folder in folders.values():
        folder.mkdir()
    folders["source"] = source_output(tmp_path / "source", tiny_llama)
    generator = np.random.default_rng(0)

    def windows(count: int) -> list[np.ndarray[Any, np.dtype[np.int32]]]:
        return list(generator.integers(0, 400, (count, 32)).astype(np.int32))

    save_windows(folders["data"] / CALIBRATION_FILE, make_windows(windows(8), [PACKED] * 8))
    save_windows(folders["data"] / SELECTION_FILE, make_windows(windows(4), [0, 1, 2, 3]))
    params = QuantizeParams(candidates=(GPTQ,), device="cpu", batch_tokens=64)
    stage.run(params, folders, folders["codes"], RecordingReporter())
    return folders


def run(
    inputs: dict[str, Path],
    tmp_path: Path,
    name: str = "out",
    reporter: Any = None,
    keep: tuple[str, ...] = (),
) -> Path:
    output = tmp_path / name
    output.mkdir(exist_ok=True)
    refine.run(PARAMS.model_copy(update={"keep": keep}), inputs, output, reporter or RecordingReporter())
    return output


def codes(folder: Path) -> list[bytes]:
    return [block_file(folder, GPTQ.id, index).read_bytes() for index in range(BLOCKS)]


def always(taken: str) -> Any:
    """Stands in for the measurement, plain first: so that these codes are the better ones."""
    values = iter([2.0, 1.0] if taken == "refined" else [1.0, 2.0])
    return lambda *args: next(values)


def quantized_model(model: Path, folder: Path, blocks: int = BLOCKS) -> Any:
    load: Any = AutoModelForCausalLM.from_pretrained
    loaded = load(model, dtype=torch.float32)
    for index in range(blocks):
        for name, own in load_block(block_file(folder, GPTQ.id, index)).linears.items():
            loaded.get_submodule(name).weight.data.copy_(dequantize(own))
    return loaded


def test_each_block_is_fitted_to_what_the_quantized_ones_before_it_make_of_the_text(
    inputs: dict[str, Path], tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refine, "_mean_kl", always("refined"))
    output = run(inputs, tmp_path)
    plain, refined = codes(inputs["codes"]), codes(output)
    assert refined[0] == plain[0]
    assert refined[1] != plain[1]
    model = quantized_model(tiny_llama, output, blocks=2)
    seen: list[torch.Tensor] = []
    name = "model.layers.2.self_attn.q_proj"
    model.get_submodule(name).register_forward_pre_hook(lambda _, args: seen.append(args[0].reshape(-1, 64)))
    ids = torch.cat(stage.calibration_batches(inputs["data"], 64))
    with torch.no_grad():
        model(ids)
        factor = factorize(seen[0].T @ seen[0], damping=GPTQ.damping, shrinkage=SHRINKAGE)
        weight = model.get_submodule(name).weight.detach()
        expected = quantize_gptq(
            weight, factor, kind=GridKind(3, symmetric=True, lowest_zero_point=1), group_size=32
        )
    found = load_block(block_file(output, GPTQ.id, 2)).linears[name]
    assert (found.q == expected.q).float().mean() > 0.98


def test_the_better_codes_by_kl_on_the_selection_windows_are_passed_on(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for taken in ("refined", "plain"):
        monkeypatch.setattr(refine, "_mean_kl", always(taken))
        output = run(inputs, tmp_path, taken)
        assert load_refine_record(output).taken == taken
        assert (codes(output) == codes(inputs["codes"])) == (taken == "plain")
        files = [block_file(output, GPTQ.id, index) for index in range(BLOCKS)]
        assert {file.stat().st_mode & 0o777 for file in files} == {0o444}


def test_what_is_compared_is_the_kl_of_each_quantized_model(
    inputs: dict[str, Path], tmp_path: Path, tiny_llama: Path
) -> None:
    reporter = RecordingReporter()
    record = load_refine_record(run(inputs, tmp_path, reporter=reporter))
    load: Any = AutoModelForCausalLM.from_pretrained
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 400, (12, 32))[8:])

    def kl(codes: Path) -> float:
        with torch.no_grad():
            lossless = load(tiny_llama, dtype=torch.float32)(ids).logits[:, :-1].log_softmax(-1)
            own = quantized_model(tiny_llama, codes)(ids).logits[:, :-1].log_softmax(-1)
        return float((lossless.exp() * (lossless - own)).sum(-1).mean())

    assert record.kl_plain == pytest.approx(kl(inputs["codes"]), rel=1e-3)
    assert record.kl_refined == pytest.approx(kl(reporter.progress_folder / "refined"), rel=1e-3)
    assert record.kl_plain is not None
    assert record.kl_refined is not None
    # Far enough apart that one could not be taken for the other.
    assert abs(record.kl_refined / record.kl_plain - 1) > 0.01
    assert record.positions == 4 * 31
    assert record.taken == ("refined" if record.kl_refined < record.kl_plain else "plain")
    assert 1 < record.forwards < 2


def test_kept_units_stay_lossless_in_the_pass(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refine, "_mean_kl", always("refined"))
    output = run(inputs, tmp_path, keep=("model.layers.0.*",))
    assert load_block(block_file(output, GPTQ.id, 0)).linears == {}
    assert codes(output)[1] == codes(inputs["codes"])[1]
    assert codes(output)[2] != codes(inputs["codes"])[2]


def test_without_selection_windows_codes_are_passed_on_as_they_came_and_that_is_an_event(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    save_windows(inputs["data"] / SELECTION_FILE, make_windows([], []))
    reporter = RecordingReporter()
    output = run(inputs, tmp_path, reporter=reporter)
    assert reporter.codes() == ["refinement-not-judged"]
    assert codes(output) == codes(inputs["codes"])
    assert load_refine_record(output).kl_plain is None


def test_an_interrupted_pass_goes_on_and_ends_the_same(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(inputs, tmp_path, "whole")
    monkeypatch.setattr("quantflow.pipeline.pace.MAX_OVERHEAD", float("inf"))
    real, seen = refine.quantize_block, list[int]()  # type: ignore[attr-defined]

    def dying(block: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(block.index)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return real(block, *args, **kwargs)

    monkeypatch.setattr(refine, "quantize_block", dying)
    reporter = RecordingReporter()
    with pytest.raises(KeyboardInterrupt):
        run(inputs, tmp_path, "cut", reporter)
    cut = run(inputs, tmp_path, "cut", reporter)
    assert seen == [0, 1, 2, 2]
    assert codes(cut) == codes(whole)
    assert load_refine_record(cut) == load_refine_record(whole)


def test_what_happens_in_the_pass_is_an_event_too(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refine, "_mean_kl", always("refined"))

    def harder(gram: torch.Tensor, *, damping: float, **rest: Any) -> Any:
        found = factorize(gram, damping=10 * damping, **rest)
        return type(found)(found.lower, found.columns, found.damping, 1)

    monkeypatch.setattr("quantflow.quantize.block.factorize", harder)
    reporter = RecordingReporter()
    run(inputs, tmp_path, reporter=reporter, keep=("*.o",))
    (event,) = reporter.events
    assert event.code == "damping-raised"
    # Nothing is said of units that are kept.
    assert len(event.detail["units"]) == 3 * BLOCKS  # type: ignore[arg-type]
