"""Graphs on tasks, on prompts and beside themselves: ONNX Runtime answers what torch answers."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lm_eval.api.instance import Instance
from numpy.typing import NDArray

from quantflow.errors import SourceError
from quantflow.formats.onnx.base import load_base
from quantflow.formats.onnx.params import OnnxAssembleParams
from quantflow.gate.fidelity import MAX_LOGIT_DIFFERENCE, fidelity_criterion
from quantflow.gate.lossless import find_level
from quantflow.gate.tasks import pairing_problem
from quantflow.gate.verdict import Verdict
from quantflow.measure import generation, onnx, onnx_fidelity, onnx_generation, onnx_noise
from quantflow.measure.fidelity import Fidelity, load_fidelity
from quantflow.measure.generation_record import load_generation
from quantflow.measure.measurement import load_samples
from quantflow.measure.noise_floor import load_noise
from quantflow.measure.onnx_params import (
    OnnxFidelityParams,
    OnnxGenerationParams,
    OnnxMeasureParams,
    OnnxNoiseParams,
)
from quantflow.measure.params import GenerationParams
from quantflow.model.config import load_config
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.tokenizer import load_tokenizer
from quantflow.model.weights import SafetensorsReader
from quantflow.runtime.ort import OnnxModel
from quantflow.tasks import graph_stage
from quantflow.tasks.adapter import RuntimeLM
from quantflow.tasks.batches import Batches, TextModel
from quantflow.tasks.graph_text import GraphText
from quantflow.tasks.params import OnnxTasksParams, TaskSpec
from quantflow.tasks.record import load_tasks
from quantflow.tasks.scoring import TorchText
from tests.formats.onnx.conftest import SESSION, Ground
from tests.measure.inputs import data_output, evaluation_windows, source_output
from tests.reporting import RecordingReporter
from tests.tasks.toys import task_folder, tasks_params

PER_TOKEN = 1e-4  # nats: the graph's own parity in logits is 1e-3
PROMPTS = {"prompts": 7, "prompt_tokens": 12, "output_tokens": 6, "seed": 0}
CONTEXTS = ("Dear customer, this is about order NL-100007.", "If the thermostat does not pair,", "")
ANSWERS = (" please hold the button", " send it back with the free label in the box.", " G")


def asked(model: TextModel, ground: Ground) -> RuntimeLM:
    work = Batches(RecordingReporter(), "task", "running")
    return RuntimeLM(model, load_tokenizer(ground.model, SourceError), work)


def in_torch(ground: Ground) -> RuntimeLM:
    decoder = StreamedDecoder(ground.model, SafetensorsReader(ground.model))
    return asked(TorchText(decoder, 96, SourceError, stays=False), ground)


def in_onnx(ground: Ground, at_once: int | None = None) -> RuntimeLM:
    model = OnnxModel(load_base(ground.base).folder, SESSION)
    return asked(GraphText(model, load_config(ground.model), SourceError, at_once), ground)


def requests(kind: str, *arguments: tuple[object, ...]) -> list[Instance]:
    return [Instance(kind, {}, argument, number) for number, argument in enumerate(arguments)]


def test_the_lossless_graph_finds_answers_as_likely_as_torch_does(ground: Ground) -> None:
    pairs = requests("loglikelihood", *((a, b) for a in CONTEXTS for b in ANSWERS))
    lm = in_onnx(ground)
    expected = in_torch(ground).loglikelihood(pairs)
    for (mine, greedy), (other, other_greedy), pair in zip(
        lm.loglikelihood(pairs), expected, pairs, strict=True
    ):
        tokens = len(lm.tok_encode(pair.args[1]))
        assert mine == pytest.approx(other, abs=PER_TOKEN * tokens)
        assert greedy == other_greedy
    assert len({mine for mine, _ in expected}) == len(pairs)


def test_whole_texts_longer_than_the_context_come_out_as_in_torch(ground: Ground) -> None:
    text = " ".join(CONTEXTS) * 12
    lm = in_onnx(ground)
    tokens = len(lm.tok_encode(text))
    assert tokens > lm.max_length
    (mine,) = lm.loglikelihood_rolling(requests("loglikelihood_rolling", (text,)))
    (other,) = in_torch(ground).loglikelihood_rolling(requests("loglikelihood_rolling", (text,)))
    assert mine == pytest.approx(other, abs=PER_TOKEN * tokens)


def test_greedy_text_is_torchs_and_stops_where_torchs_does(ground: Ground) -> None:
    settings = {"until": [" and", "."], "max_gen_toks": 24, "do_sample": False}
    contexts = requests("generate_until", *((context, settings) for context in CONTEXTS if context))
    mine = in_onnx(ground).generate_until(contexts)
    assert mine == in_torch(ground).generate_until(contexts)
    assert any(mine)


def test_prompts_in_pieces_over_the_cache_are_the_same_prompts(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    run = OnnxModel._run

    def counted(self: OnnxModel, ids: NDArray[np.int64], past: int, cache: list[Any]) -> NDArray[np.float32]:
        sizes.append(ids.size)
        return run(self, ids, past, cache)

    monkeypatch.setattr(OnnxModel, "_run", counted)
    pairs = requests("loglikelihood", *((a, b) for a in CONTEXTS for b in ANSWERS))
    whole = in_onnx(ground).loglikelihood(pairs)
    assert len([size for size in sizes if size > 3]) >= len(CONTEXTS) - 1
    sizes.clear()
    pieces = in_onnx(ground, 3).loglikelihood(pairs)
    assert max(sizes) == 3
    assert [score for score, _ in pieces] == pytest.approx([score for score, _ in whole], abs=1e-4)
    assert [greedy for _, greedy in pieces] == [greedy for _, greedy in whole]


def test_finished_prompts_are_not_run_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = requests("loglikelihood", (CONTEXTS[0], ANSWERS[0]))
    text = requests("generate_until", (CONTEXTS[0], {"until": ["."], "max_gen_toks": 4}))
    lm = in_onnx(ground)
    first = lm.loglikelihood(pairs), lm.generate_until(text)
    monkeypatch.setattr(OnnxModel, "start", None)
    again = RuntimeLM(lm.text_model, lm.tokenizer, Batches(lm.work._reporter, "task", "running"))
    assert (again.loglikelihood(pairs), again.generate_until(text)) == first


def test_tasks_and_prompts_of_an_fp32_artifact_pair_with_the_lossless_graphs(
    ground: Ground, tmp_path: Path
) -> None:
    plan = OnnxAssembleParams(name="same", scheme="fp32", session=SESSION)
    assembled = ground.assembled(tmp_path / "assembled", plan)
    names = ("toy_next", "toy_choice", "toy_text")
    listed = tasks_params(task_folder(tmp_path / "own"), *(TaskSpec(name=name) for name in names))
    params = OnnxTasksParams(tasks=listed.tasks, files=listed.files, seed=listed.seed, session=SESSION)
    inputs = {"source": ground.source, "base": ground.base, "data": ground.data, "assemble": assembled}
    before, after = (tmp_path / name for name in ("before", "after"))
    for folder in (before, after):
        folder.mkdir()
    graph_stage.baseline(params, inputs, before, RecordingReporter())
    graph_stage.artifact(params, inputs, after, RecordingReporter())
    for name in names:
        old, new = load_tasks(before)[name], load_tasks(after)[name]
        assert pairing_problem(old, new) is None
        assert [item.value for item in old.items] == [item.value for item in new.items]
        assert old.noise is not None
        assert old.noise.items == 8
    assert load_tasks(before)["toy_next"].value > 0.5


def test_generated_text_is_torchs_and_an_artifact_gets_the_baselines_prompts(
    ground: Ground, tmp_path: Path
) -> None:
    plan = OnnxAssembleParams(name="same", scheme="fp32", session=SESSION)
    assembled = ground.assembled(tmp_path / "assembled", plan)
    outputs = {name: tmp_path / name for name in ("torch", "generation", "artifact")}
    for folder in outputs.values():
        folder.mkdir()
    inputs = {"source": ground.source, "base": ground.base, "data": ground.data, "assemble": assembled}
    torch_params = GenerationParams(**PROMPTS, device="cpu", batch_tokens=64)
    generation.baseline(torch_params, inputs, outputs["torch"], RecordingReporter())
    params = OnnxGenerationParams(**PROMPTS, session=SESSION)
    onnx_generation.baseline(params, inputs, outputs["generation"], RecordingReporter())
    onnx_generation.artifact(
        params, inputs | {"generation": outputs["generation"]}, outputs["artifact"], RecordingReporter()
    )
    in_pytorch, lossless, made = (load_generation(folder) for folder in outputs.values())
    assert [s.tokens for s in lossless.samples] == [s.tokens for s in in_pytorch.samples]
    assert made.samples == lossless.samples
    assert lossless.other_batches == (True,) * len(lossless.samples)


def test_a_graph_that_is_the_lossless_one_reaches_l1_and_another_does_not(
    ground: Ground, tmp_path: Path
) -> None:
    windows = evaluation_windows((20,) * 32, tuple(range(32)))
    data = data_output(tmp_path / "data", windows, ("all",) * 32)
    inputs = {"base": ground.base, "data": data}
    params = OnnxMeasureParams(session=SESSION, instruction_set="avx2")
    folders = {name: tmp_path / name for name in ("baseline", "noise", "fp32", "w8-block")}
    for folder in folders.values():
        folder.mkdir()
    onnx.baseline(params, inputs, folders["baseline"], RecordingReporter())
    inputs["baseline"] = folders["baseline"]
    noise_params = OnnxNoiseParams(session=SESSION, windows=4)
    onnx_noise.run(noise_params, inputs, folders["noise"], RecordingReporter())
    floor = load_noise(folders["noise"])
    assert (floor.documents, floor.tokens) == (4, 4 * 19)
    assert 0 <= floor.kl_mean <= floor.kl_max < 1e-5
    for scheme, reached in (("fp32", True), ("w8-block", False)):
        plan = OnnxAssembleParams.model_validate({"name": scheme, "scheme": scheme, "session": SESSION})
        assembled = ground.assembled(tmp_path / f"made-{scheme}", plan)
        onnx.artifact(params, inputs | {"assemble": assembled}, folders[scheme], RecordingReporter())
        before, after = (load_samples(folders[name]) for name in ("baseline", scheme))
        level = find_level(Verdict.PASS, before, after, floor)
        assert level.checks[0].reached is reached, level.sentence


def test_a_logit_that_is_no_number_is_an_error(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = in_onnx(ground)
    model = lm.text_model
    assert isinstance(model, GraphText)
    broken = np.full((1, model._model.vocab_size), np.nan, dtype=np.float32)
    monkeypatch.setattr(OnnxModel, "_run", lambda *given: broken)
    with pytest.raises(SourceError, match="not finite"):
        lm.loglikelihood(requests("loglikelihood", ("Good", " morning")))


def fidelity_of(ground: Ground, source: Path, output: Path) -> Fidelity:
    output.mkdir()
    params = OnnxFidelityParams(session=SESSION, device="cpu", windows=3, tokens=50)
    inputs = {"source": source, "base": ground.base, "data": ground.data}
    onnx_fidelity.run(params, inputs, output, RecordingReporter())
    return load_fidelity(output)


def test_the_lossless_graph_is_the_model_to_a_thousandth_of_a_logit(ground: Ground, tmp_path: Path) -> None:
    found = fidelity_of(ground, ground.source, tmp_path / "fidelity")
    assert (found.precision, found.split, found.windows, found.tokens) == (
        "fp32",
        "evaluation",
        3,
        50 + 50 + 40,  # the longest windows, the first two cut
    )
    assert 0 < found.max_logit_difference < MAX_LOGIT_DIFFERENCE
    assert found.kl_mean <= found.kl_max < 1e-6
    judged = fidelity_criterion("w8", found)
    assert (judged.verdict, judged.margin) == (Verdict.PASS, 1e-3)


def test_a_graph_of_another_model_is_an_error_for_every_artifact(ground: Ground, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(ground.model, tmp_path / "changed"))
    config = json.loads((changed / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 20000.0}
    (changed / "config.json").write_text(json.dumps(config))
    found = fidelity_of(ground, source_output(tmp_path / "source", changed), tmp_path / "fidelity")
    judged = fidelity_criterion("w8", found)
    assert judged.verdict is Verdict.ERROR
    assert "is not the model in torch" in judged.reason
