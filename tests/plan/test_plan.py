"""The plan of the tiny recipe, before it runs and after."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import quantflow
from quantflow.model.families import FAMILIES
from quantflow.pipeline import code
from quantflow.pipeline.machine import find_machine
from quantflow.pipeline.store import Store
from quantflow.plan import costs, make
from quantflow.plan.learned import LEAST_SECONDS, Lesson, Past, learn, past_stages
from quantflow.plan.make import Plan, make_plan
from quantflow.plan.speed import CalibrationError, Speed
from quantflow.plan.work import Cost, amounts
from quantflow.recipe.load import load_recipe
from tests.tiny_models import random_model, tiny_config, tiny_tokenizer
from tests.tiny_run import write_recipe

# What a plan may miss by. Stages of the tiny model are over in tenths of a second, so time is left to
# benchmarks/plan.py.
AIM = 0.25
KINDS = (
    "bf16 elementwise fresh rounding converting packing unpacking attention scoring comparing call block "
    "writing reading hashing"
)
SPEED = Speed(
    machine="test", imports=2.0, rates=dict.fromkeys([f"matmul-{n}" for n in (64, 256)] + KINDS.split(), 1e9)
)


@pytest.fixture(scope="module")
def finished(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planned")
    quantflow.run(load_recipe(write_recipe(folder, tiny_llama)), folder=folder)
    return folder


@pytest.fixture
def again(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "work", symlinks=True)
    return tmp_path / "work"


@pytest.fixture(autouse=True)
def speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is not measured here."""
    monkeypatch.setattr(make, "find_speed", lambda workspace, device, on_measure: SPEED)
    monkeypatch.setattr(make, "machine_is_busy", lambda: False)


def plan(folder: Path, *overrides: str) -> Plan:
    return make_plan(load_recipe(folder / "tiny.yaml", overrides), folder=folder)


def reasons(planned: Plan) -> dict[str, str]:
    return {stage.name: "; ".join(map(str, stage.reasons)) for stage in planned.to_run}


def test_before_the_first_run_every_stage_was_never_run_and_is_estimated(
    tmp_path: Path, tiny_llama: Path
) -> None:
    write_recipe(tmp_path, tiny_llama)
    planned = plan(tmp_path)
    assert set(reasons(planned).values()) == {"never run"}
    assert len(planned.to_run) == 11
    for stage in planned.stages:
        assert stage.seconds is not None, stage.name
        assert stage.memory is not None
        assert stage.disk is not None
        assert stage.unknown == ""
    assert planned.seconds == pytest.approx(2.0 + sum(stage.seconds or 0 for stage in planned.stages))
    assert planned.fit.fits


def test_after_a_run_everything_is_in_the_store(again: Path) -> None:
    planned = plan(again)
    assert planned.to_run == ()
    assert planned.seconds == 0
    assert planned.fit.rooms == ()


def test_keys_that_are_planned_are_those_that_are_run(tmp_path: Path, tiny_llama: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, tiny_llama))
    quantflow.run(recipe, folder=tmp_path)
    assert all(stage.cached for stage in make_plan(recipe, folder=tmp_path).stages)


def test_a_changed_parameter_is_the_reason_where_it_counts_and_its_stage_further_on(again: Path) -> None:
    assert reasons(plan(again, "data.calibration.windows=4")) == {
        "data": "parameter calibration_windows: 8 → 4",
        "baseline": "input data",
        "quantize": "input data",
        "assemble:int4": "input quantize",
        "noise": "input data; input baseline",
        "yardstick:int4": "input data; input baseline",
        "measure:int4": "input data; input baseline; input assemble:int4",
        "gate:int4": "input data; input baseline; input measure:int4; input noise; input assemble:int4",
    }


def test_a_margin_concerns_the_gate_alone(again: Path) -> None:
    assert reasons(plan(again, "gate.kl.max_mean=0.25")) == {"gate:int4": "parameter max_mean_kl: 0.5 → 0.25"}


def test_changed_data_is_the_reason(again: Path) -> None:
    with (again / "letters.jsonl").open("a") as file:
        file.write('{"text": "One more letter, about a filter."}\n')
    assert reasons(plan(again))["data"] == "data letters.jsonl"


def test_a_damaged_output_is_the_reason(again: Path) -> None:
    (measured,) = again.glob(".quantflow/store/measure/*/measurement.json")
    measured.chmod(0o644)
    measured.write_text("{}")
    assert reasons(plan(again)) == {"measure:int4": "damaged output in the store"}


def test_an_interrupted_stage_goes_on_and_its_figures_are_upper_bounds(again: Path) -> None:
    store = Store(again / ".quantflow" / "store")
    (measured,) = again.glob(".quantflow/store/measure/*")
    shutil.rmtree(measured)
    assert [stage.resumes for stage in plan(again).to_run] == [False]
    (store.begin(measured.name, resume=True).progress / "blocks-00001.safetensors").write_bytes(b"half")
    assert [stage.resumes for stage in plan(again).to_run] == [True]


def test_a_new_library_is_the_reason(again: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code._version.cache_clear()
    real = importlib.metadata.version
    monkeypatch.setattr(code, "version", lambda name: "99.0" if name == "scipy" else real(name))
    found = reasons(plan(again))
    code._version.cache_clear()
    assert found["gate:int4"].startswith("library scipy: ")
    assert found["gate:int4"].endswith("→ 99.0")


def test_another_instruction_set_is_the_reason(again: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = find_machine
    monkeypatch.setattr(
        make, "find_machine", lambda device: real(device).model_copy(update={"instruction_sets": ("avx9",)})
    )
    found = reasons(plan(again))
    assert found["baseline"].startswith("device instruction_sets: ")
    assert "source" not in found


def test_text_is_counted_when_the_data_stage_has_run_and_sampled_before(
    again: Path, tmp_path: Path, tiny_llama: Path
) -> None:
    write_recipe(tmp_path / "new", tiny_llama)
    before, after = plan(tmp_path / "new").facts, plan(again, "runtime.batch_tokens=512").facts
    assert (before.text_known_by, after.text_known_by) == ("sampled", "counted")
    assert before.evaluation_tokens == pytest.approx(after.evaluation_tokens, rel=0.05)


def test_disk_and_memory_are_those_of_the_run(tmp_path: Path, tiny_llama: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, tiny_llama))
    planned = {stage.name.partition(":")[0]: stage for stage in make_plan(recipe, folder=tmp_path).stages}
    quantflow.run(recipe, folder=tmp_path)
    for _, manifest in Store(tmp_path / ".quantflow" / "store").objects():
        assert manifest is not None
        assert manifest.usage is not None
        stage = planned[manifest.stage]
        written = sum(record.size for record in manifest.files.values())
        if written > 100_000:
            assert stage.disk == pytest.approx(written, rel=AIM), manifest.stage


def test_what_artifacts_share_is_made_and_counted_once(tmp_path: Path, tiny_llama: Path) -> None:
    path = write_recipe(tmp_path, tiny_llama)
    first = plan(tmp_path)
    text = path.read_text()
    own = "  - {name: int4, format: awq, bits: 4, group_size: 32}\n"
    path.write_text(text.replace(own, own + own.replace("int4", "twin")))
    made = plan(tmp_path)
    shared = {
        stage.name: str(stage.reasons[0]) for stage in made.stages if stage.reasons[0].cause == "made by"
    }
    assert shared == {"yardstick:twin": "made by yardstick:int4"}
    twin = {stage.name: stage for stage in made.stages}["yardstick:twin"]
    assert (twin.cached, twin.disk, twin.seconds) == (False, 0, 0.0)
    (room,) = [room for room in made.fit.rooms if room.what == "disk"]
    assert room.needed == sum(stage.disk or 0 for stage in made.stages) + max(s.scratch for s in made.stages)
    assert first.fit.rooms[0] == made.fit.rooms[0].model_copy(
        update={"available": first.fit.rooms[0].available}
    )
    report = quantflow.run(load_recipe(path), folder=tmp_path).report
    stages: Any = report.provenance["stages"]
    assert [stage["name"] for stage in stages if stage["reused"]] == list(shared)


def test_without_a_measured_speed_times_are_unknown_and_the_rest_is_told(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(workspace: Path, device: str, on_measure: object) -> Speed:
        raise CalibrationError("the machine's speed could not be measured: no torch")

    monkeypatch.setattr(make, "find_speed", refuse)
    write_recipe(tmp_path, tiny_llama)
    planned = plan(tmp_path)
    assert planned.seconds is None
    assert all(stage.memory for stage in planned.stages)
    assert "no torch" in planned.notes[0]


def test_a_wheel_that_is_not_here_leaves_everything_that_hangs_on_it_unknown(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write_recipe(tmp_path, tiny_llama)
    source = f"wheel://tiny-model==0.1/tiny_model/tiny.gguf#sha256={'a' * 64}"
    path.write_text(path.read_text().replace(str(tiny_llama), source))
    planned = {stage.name: stage for stage in plan(tmp_path).stages}
    for name in ("source", "baseline", "quantize", "assemble:int4", "measure:int4"):
        assert "not been fetched" in planned[name].unknown
        assert planned[name].seconds is None
    assert planned["gate:int4"].unknown == ""


def test_an_export_is_counted_as_well(tmp_path: Path, tiny_llama: Path) -> None:
    path = write_recipe(tmp_path, tiny_llama)
    artifact = "artifacts:\n  - {name: half, format: hf, dtype: float16}"
    path.write_text(path.read_text().replace("artifacts:", artifact))
    planned = {stage.name: stage for stage in plan(tmp_path).stages}
    assert planned["assemble:half"].disk == pytest.approx(2 * 136_192)
    assert planned["assemble:half"].seconds is not None


def test_a_kind_of_stage_that_nobody_has_counted_is_unknown_and_says_so(
    again: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        costs, "STAGES", {name: of for name, of in costs.STAGES.items() if "baseline" not in name}
    )
    planned = {stage.name: stage for stage in plan(again, "runtime.batch_tokens=512").stages}
    assert "has not been counted" in planned["baseline"].unknown
    assert planned["baseline"].memory is None
    assert planned["measure:int4"].memory is not None


def test_a_folder_that_may_only_be_read_can_be_planned_in(tmp_path: Path, tiny_llama: Path) -> None:
    path = write_recipe(tmp_path / "recipe", tiny_llama)
    (tmp_path / "here").write_text("no folder, so nothing can be made in it")
    planned = make_plan(load_recipe(path), folder=tmp_path / "here")
    assert len(planned.to_run) == 11


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_every_listed_family_is_planned(kind: str, tmp_path: Path) -> None:
    model = random_model(tmp_path / "model", tiny_config(kind))
    tiny_tokenizer().save_pretrained(model)
    write_recipe(tmp_path, model, letters=40)
    planned = plan(tmp_path)
    assert len(planned.to_run) == 11
    assert all(stage.seconds is not None for stage in planned.to_run)


def test_planning_imports_neither_torch_nor_transformers(again: Path) -> None:
    script = (
        "import sys\n"
        "from quantflow.plan import make\n"
        "from quantflow.plan.speed import Speed\n"
        f"make.find_speed = lambda *of: Speed.model_validate_json({SPEED.model_dump_json()!r})\n"
        "from quantflow.recipe.load import load_recipe\n"
        "from pathlib import Path\n"
        "folder = Path(sys.argv[1])\n"
        "recipe = load_recipe(folder / 'tiny.yaml', ['data.calibration.windows=4'])\n"
        "print(len(make.make_plan(recipe, folder=folder).to_run))\n"
        "print('torch' in sys.modules or 'transformers' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(again)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["8", "False"], done.stderr


def test_stored_stages_teach_how_much_longer_their_kind_takes(finished: Path) -> None:
    past = list(past_stages(Store(finished / ".quantflow" / "store")))
    assert {stage.manifest.stage for stage in past} >= {"baseline", "quantize", "assemble", "measure"}
    (baseline,) = (stage for stage in past if stage.manifest.stage == "baseline")
    usage = baseline.manifest.usage
    assert usage is not None

    def took(seconds: float, on: str = "test") -> Past:
        manifest = baseline.manifest.model_copy(
            update={"seconds": seconds, "usage": usage.model_copy(update={"computed_on": on})}
        )
        return Past("f", manifest, Cost(amounts(rounding=4e9)))

    slow, slower, slowest = took(8), took(12), took(16)
    assert learn([slow, slower, slowest], SPEED) == {"f": Lesson(3.0, 3)}
    assert learn([slow, took(400, on="another machine")], SPEED) == {"f": Lesson(2.0, 1)}
    # The newest five count.
    assert learn([slow] * 5 + [slowest] * 9, SPEED) == {"f": Lesson(2.0, 5)}
    assert learn([took(LEAST_SECONDS / 2)], SPEED) == {}


def test_a_lesson_is_applied_and_said(again: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        make, "learn", lambda past, speed: {"quantflow.measure.baseline:run": Lesson(ratio=10.0, stages=2)}
    )
    learned = {stage.name: stage for stage in plan(again, "runtime.batch_tokens=512").stages}
    monkeypatch.setattr(make, "learn", lambda past, speed: {})
    counted = {stage.name: stage for stage in plan(again, "runtime.batch_tokens=512").stages}
    assert learned["baseline"].seconds == pytest.approx(10 * (counted["baseline"].seconds or 0))
    assert (learned["baseline"].seconds_by, learned["baseline"].learned_from) == ("learned", 2)
    assert learned["measure:int4"].seconds_by == "counted"


def test_a_plan_is_json(again: Path) -> None:
    told = json.loads(plan(again, "data.calibration.windows=4").model_dump_json())
    (data,) = (stage for stage in told["stages"] if stage["name"] == "data")
    assert data["reasons"] == [{"cause": "parameter", "what": "calibration_windows", "before": 8, "now": 4}]
