"""What a recipe may say of ONNX artifacts and of ONNX Runtime."""

import os
from pathlib import Path

import pytest

from quantflow.errors import QuantFlowError, RecipeError
from quantflow.formats.onnx.params import OnnxAssembleParams
from quantflow.pipeline import onnx
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.graph import build_graph
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.onnx_runtime import graph_params
from quantflow.pipeline.stage import Stage
from quantflow.recipe.load import load_recipe
from quantflow.recipe.margins import margins
from quantflow.recipe.schema import Recipe
from tests.tiny_run import write_recipe

CPU = Machine(device="cpu", architecture="x86_64", instruction_sets=("avx2",))
GPU = Machine(device="cuda", architecture="x86_64", instruction_sets=("avx2",))
INT4 = "{name: int4, format: awq, bits: 4, group_size: 32}"


def recipe_of(folder: Path, *artifacts: str, gate: str = "") -> Recipe:
    path = write_recipe(folder, folder)
    lines = "\n".join(f"  - {artifact}" for artifact in artifacts)
    text = path.read_text().replace(f"  - {INT4}", lines)
    path.write_text(text.replace("gate:\n", f"gate:\n{gate}"))
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()
    return load_recipe(path)


def shared(recipe: Recipe, machine: Machine) -> tuple[Stage, ...]:
    return onnx.onnx_shared_stages(recipe, machine, DigestCache(recipe.base / "digests"))


@pytest.mark.parametrize(
    ("artifact", "words"),
    [
        ("{name: a, format: onnx}", "scheme: this key is missing"),
        ("{name: a, format: onnx, scheme: int8}", "`int8` is not allowed"),
        ("{name: a, format: onnx, scheme: w8, block_size: 64}", "it does nothing with scheme w8"),
        ("{name: a, format: onnx, scheme: fp32, keep: [lm_head]}", "it does nothing with scheme fp32"),
        ("{name: a, format: onnx, scheme: w8, codes_from: b}", "it does nothing with scheme w8"),
        ("{name: a, format: onnx, scheme: w8, reduce_range: true}", "it does nothing with scheme w8"),
        ("{name: a, format: onnx, scheme: w8a8, remedy: false, max_floating: 0.2}", "with remedy: false"),
        ("{name: a, format: onnx, scheme: w4-block, block_size: 16}", "`16` is not allowed"),
        ("{name: a, format: onnx, scheme: w4-block, codes_from: b}", "b is no artifact of this recipe"),
        ("{name: a, format: onnx, scheme: w4-block, codes_from: a}", "its format is onnx"),
    ],
)
def test_a_mistake_is_named_with_its_key(tmp_path: Path, artifact: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words) as refused:
        recipe_of(tmp_path, artifact)
    assert "tiny.yaml:10" in str(refused.value)


@pytest.mark.parametrize(
    ("donor", "words"),
    [
        ("format: gptq, bits: 8", "codes of 8 bits"),
        ("format: gptq, bits: 4, group_size: -1", "one group for a whole row"),
        ("format: gptq, bits: 4, desc_act: true", "not consecutive inputs"),
        ("format: hf, dtype: float16", "its format is hf"),
    ],
)
def test_codes_that_onnx_runtime_cannot_take_are_refused(tmp_path: Path, donor: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        recipe_of(
            tmp_path,
            f"{{name: donor, {donor}}}",
            "{name: a, format: onnx, scheme: w4-block, codes_from: donor}",
        )


def test_an_onnx_artifact_is_measured_beside_its_own_baseline_and_always_timed(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "{name: a, format: onnx, scheme: w8}")
    stages = {stage.name: stage for stage in build_graph(recipe, CPU, DigestCache(tmp_path / "digests"))}
    assert stages["measure:a"].inputs["baseline"] == "baseline:onnx"
    assert stages["gate:a"].inputs["baseline"] == "baseline:onnx"
    assert stages["speed:a"].again
    assert stages["assemble:a"].inputs["values"] == "remedy:a"


def test_weights_as_they_come_need_no_calibration(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "{name: a, format: onnx, scheme: w8, remedy: false}")
    names = [stage.name for stage in build_graph(recipe, CPU, DigestCache(tmp_path / "digests"))]
    assert "quantize" not in names
    assert "remedy:a" not in names


def test_one_quantization_serves_both_runtimes(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "{name: a, format: onnx, scheme: w4-block, codes_from: int4}", INT4)
    names = [stage.name for stage in build_graph(recipe, CPU, DigestCache(tmp_path / "digests"))]
    assert names.count("quantize") == 1
    assert names.index("assemble:int4") < names.index("assemble:a")


def test_threads_of_the_machine_are_no_part_of_an_artifact(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "{name: a, format: onnx, scheme: w8}")
    made = []
    for threads in (1, 7):
        options = recipe.runtime.onnx.model_copy(update={"threads": threads})
        runtime = recipe.runtime.model_copy(update={"onnx": options})
        graph = build_graph(recipe.model_copy(update={"runtime": runtime}), CPU, DigestCache(tmp_path / "d"))
        made += [stage.params for stage in graph if stage.name == "assemble:a"]
    assert made[0] == made[1]
    assert isinstance(made[0], OnnxAssembleParams)


@pytest.mark.parametrize(("said", "threads"), [("3", 3), ("5,2", 5), ("many", None), ("0", None), ("", None)])
def test_what_the_environment_says_of_threads_is_taken_or_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, threads: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    found = graph_params(recipe_of(tmp_path, "{name: a, format: onnx, scheme: w8}"), CPU).session.threads
    assert found == (threads or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(("scheme", "bits"), [("fp32", 16), ("w8", 8), ("w4-block", 4), ("dynamic", 8)])
def test_margins_follow_the_bits(tmp_path: Path, scheme: str, bits: int) -> None:
    recipe = recipe_of(tmp_path, f"{{name: a, format: onnx, scheme: {scheme}}}")
    assert recipe.artifacts[0].bits == bits
    assert margins(recipe, recipe.artifacts[0]).max_mean_kl <= 0.5


def test_float16_is_refused_on_a_processor_and_int8_on_a_gpu(tmp_path: Path) -> None:
    half = recipe_of(tmp_path, "{name: a, format: onnx, scheme: fp16}")
    with pytest.raises(RecipeError, match="fp16 is for GPUs"):
        shared(half, CPU)
    eight = recipe_of(tmp_path, "{name: a, format: onnx, scheme: w8}")
    with pytest.raises(RecipeError, match="w8 is for processors"):
        shared(eight, GPU)


def test_a_package_that_is_missing_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = recipe_of(tmp_path, "{name: a, format: onnx, scheme: fp16}")
    with pytest.raises(QuantFlowError, match="onnxruntime-genai-cuda is not installed"):
        shared(half, GPU)
    monkeypatch.setattr(onnx, "BUILDERS", {"cpu": ("no-such-package",)})
    with pytest.raises(QuantFlowError, match="no-such-package is not installed"):
        shared(recipe_of(tmp_path, "{name: a, format: onnx, scheme: w8}"), CPU)


ASKED = "  tasks: [{name: reading, max_drop: 0.1}]\n  generation: {prompts: 40}\n"


def test_graphs_are_asked_in_onnx_runtime_and_torch_is_not_asked_for_nothing(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "{name: onnx, format: onnx, scheme: w8}", gate=ASKED)
    stages = {stage.name: stage for stage in build_graph(recipe, CPU, DigestCache(tmp_path / "digests"))}
    assert stages["tasks:onnx"].inputs["baseline"] == "tasks-onnx"
    assert stages["tasks-onnx"].inputs["base"] == "onnx-base"
    assert stages["generation:onnx"].inputs["generation"] == "generation-onnx"
    assert stages["gate:onnx"].inputs["tasks-baseline"] == "tasks-onnx"
    assert stages["gate:onnx"].inputs["noise"] == "noise:onnx"
    assert "tasks" not in stages
    assert "generation" not in stages


def test_each_side_is_asked_in_its_own_runtime(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "{name: a, format: onnx, scheme: w8}", INT4, gate=ASKED)
    stages = {stage.name: stage for stage in build_graph(recipe, CPU, DigestCache(tmp_path / "digests"))}
    assert stages["gate:a"].inputs["generation-baseline"] == "generation-onnx"
    assert stages["gate:int4"].inputs["generation-baseline"] == "generation"


def test_an_artifact_in_service_of_another_runtime_is_refused_at_once(tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (served / "config.json").write_text("{}")
    (served / "model.safetensors").touch()
    recipe = recipe_of(tmp_path, "{name: a, format: onnx, scheme: w8}", INT4, gate=f"  against: {served}\n")
    with pytest.raises(RecipeError, match=r"runs in torch or vLLM, and these run in ONNX Runtime: a\n"):
        build_graph(recipe, CPU, DigestCache(tmp_path / "digests"))
