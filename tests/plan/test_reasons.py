"""Why a stage has to run is told by what differs from the stored object that differs least."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from quantflow.measure.params import BaselineParams
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.runner import key_of, made_from
from quantflow.pipeline.stage import Stage, StageParams
from quantflow.pipeline.store import Manifest
from quantflow.plan.reasons import Reason, reasons

MACHINE = Machine(device="cpu", architecture="x86_64", instruction_sets=("avx2",))


class Params(StageParams):
    files: tuple[str, ...] = ("/data/a.jsonl",)
    windows: int = 8
    device: str = "cpu"
    artifact: str = "one"


def stage(params: StageParams | None = None, digest: str = "1", **more: Any) -> Stage:
    return Stage(
        name="toy:one",
        function="tests.pipeline.toy_stages:write",
        params=params or Params(),
        inputs={"before": "first"},
        external={"/data/a.jsonl": digest * 64},
        on_device=True,
        **more,
    )


def made(of: Stage, machine: Machine = MACHINE, key: str = "k") -> dict[str, Any]:
    return dict(made_from(of, machine, {"before": key}))


def stored(made: dict[str, Any]) -> Manifest:
    return Manifest(stage="toy", key=key_of(made), made_from=made, files={}, events=(), seconds=1)


def why(now: dict[str, Any], *before: dict[str, Any]) -> list[str]:
    return [str(reason) for reason in reasons(stage(), now, [stored(made) for made in before])]


def test_without_a_stored_object_it_was_never_run() -> None:
    assert why(made(stage())) == ["never run"]


def test_another_artifacts_object_is_not_compared_with() -> None:
    assert why(made(stage()), made(stage(Params(artifact="two")))) == ["never run"]


def test_a_parameter_is_told_with_both_values() -> None:
    assert why(made(stage(Params(windows=16))), made(stage())) == ["parameter windows: 8 → 16"]


def test_changed_data_is_told_by_its_files_name_and_not_by_a_hash() -> None:
    assert why(made(stage(digest="2")), made(stage())) == ["data a.jsonl"]


def test_another_input_is_told_by_the_stage_that_plays_it() -> None:
    assert why(made(stage(), key="new"), made(stage())) == ["input first"]


def test_a_changed_library_and_changed_code_are_told() -> None:
    now = made(stage())
    before = now | {"libraries": {**now["libraries"], "numpy": "1.0"}, "code": "other"}
    now = now | {"libraries": {**now["libraries"], "numpy": "2.0"}}
    assert why(now, before) == ["code of the stage", "library numpy: 1.0 → 2.0"]


def test_another_device_is_told_once() -> None:
    cuda = MACHINE.model_copy(update={"device": "cuda", "instruction_sets": ("avx2", "avx512f")})
    found = why(made(stage(Params(device="cuda")), cuda), made(stage()))
    assert found == ["device device: cpu → cuda", "device instruction_sets: avx2 → avx2 avx512f"]


def test_the_nearest_object_is_compared_with() -> None:
    far = made(stage(Params(windows=1), digest="3"), key="other")
    near = made(stage(Params(windows=4)))
    assert why(made(stage()), far, near) == ["parameter windows: 4 → 8"]


def test_a_models_content_is_data_and_not_a_parameter() -> None:
    class Source(StageParams):
        uri: str = "/models/m"
        identity: str
        files: Mapping[str, str]

    one, two = (
        Stage(
            name="source",
            function="tests.pipeline.toy_stages:write",
            params=Source(identity=digit * 64, files={"model.safetensors": digit * 64}),
            external={"/models/m/model.safetensors": digit * 64},
        )
        for digit in "12"
    )
    found = reasons(one, dict(made_from(one, MACHINE, {})), [stored(dict(made_from(two, MACHINE, {})))])
    assert found == (Reason(cause="data", what="model.safetensors"),)


@pytest.mark.parametrize("batch_tokens", [1024, 4096])
def test_parameters_of_real_stages_are_compared(batch_tokens: int, tmp_path: Path) -> None:
    params = BaselineParams(device="cpu", batch_tokens=batch_tokens)
    before = made(stage(BaselineParams(device="cpu", batch_tokens=2048)))
    found = why(made(stage(params)), before)
    assert found == [f"parameter batch_tokens: 2048 → {batch_tokens}"]
