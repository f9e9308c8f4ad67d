"""The machine's speed is measured once, remembered under its name, and measured again when it was busy."""

import json
from pathlib import Path

import pytest

from quantflow.plan import speed as speed_module
from quantflow.plan.speed import CalibrationError, Speed, find_speed
from quantflow.plan.work import amounts, matmul

RATES = {"matmul-64": 1e9, "matmul-256": 4e9, "matmul-1024": 16e9, "rounding": 100.0}


def quietly() -> None:
    pass


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Devices that were measured; the measuring itself is left out, and the machine is quiet."""
    calls: list[str] = []

    def measure(device: str, workspace: Path) -> Speed:
        calls.append(device)
        return Speed(imports=1.0, rates=RATES)

    monkeypatch.setattr(speed_module, "_measure", measure)
    monkeypatch.setattr(speed_module, "machine_is_busy", lambda: False)
    return calls


def test_work_is_divided_by_rates_and_products_by_those_of_their_size() -> None:
    speed = Speed(imports=0, rates=RATES)
    assert speed.seconds(amounts(rounding=50)) == 0.5
    assert speed.seconds(amounts(second=3)) == 3
    for width, rate in ((8, 1e9), (64, 1e9), (128, 2e9), (512, 8e9), (5000, 16e9)):
        work = matmul(width, 5000, 5000)
        assert speed.seconds(work) == pytest.approx(2 * width * 5000 * 5000 / rate)


def test_a_machine_is_measured_once(measured: list[str], tmp_path: Path) -> None:
    first = find_speed(tmp_path, "cpu", quietly)
    assert find_speed(tmp_path, "cpu", quietly) == first
    assert measured == ["cpu"]


def test_another_machine_is_measured_and_both_are_remembered(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there", "here"):
        monkeypatch.setattr(speed_module, "machine_name", lambda device, name=name: name)
        assert find_speed(tmp_path, "cpu", quietly).machine == name
    assert len(measured) == 2


def test_other_code_is_measured_anew(measured: list[str], tmp_path: Path) -> None:
    find_speed(tmp_path, "cpu", quietly)
    path = tmp_path / "speed.json"
    path.write_text(path.read_text().replace('"code": "', '"code": "0'))
    find_speed(tmp_path, "cpu", quietly)
    assert len(measured) == 2


def test_what_was_measured_on_a_busy_machine_is_measured_again_on_a_quiet_one(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed_module, "machine_is_busy", lambda: True)
    assert find_speed(tmp_path, "cpu", quietly).busy
    find_speed(tmp_path, "cpu", quietly)
    assert len(measured) == 1
    monkeypatch.setattr(speed_module, "machine_is_busy", lambda: False)
    assert not find_speed(tmp_path, "cpu", quietly).busy
    assert len(measured) == 2


def test_a_broken_memory_and_a_read_only_workspace_cost_a_measurement(
    measured: list[str], tmp_path: Path
) -> None:
    (tmp_path / "speed.json").write_text("[")
    find_speed(tmp_path, "cpu", quietly)
    find_speed(tmp_path / "absent", "cpu", quietly)
    assert len(measured) == 2


def test_a_torch_that_does_not_start_is_an_error_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed_module, "PROGRAM", "quantflow.absent")
    with pytest.raises(CalibrationError, match=r"quantflow\.absent"):
        speed_module._measure("cpu", tmp_path)


def test_this_machine_can_be_measured_and_every_kind_of_work_has_its_rate(tmp_path: Path) -> None:
    from typing import get_args

    from quantflow.plan.work import Kind

    speed = speed_module._measure("cpu", tmp_path)
    wanted = {*get_args(Kind), *(f"matmul-{width}" for width in speed_module.MATMUL_WIDTHS["cpu"])}
    assert wanted - speed.rates.keys() == {"second"}
    assert all(rate > 0 for rate in speed.rates.values())
    assert json.dumps(speed.rates)
    assert not list(tmp_path.iterdir())
