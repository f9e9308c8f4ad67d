"""A session with vLLM: what it is asked, what it gives, and what is said when it cannot."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from quantflow.errors import ArtifactError, RuntimeUnavailableError
from quantflow.runtime import engine, vllm
from quantflow.runtime.engine import Workload, cache_bytes, engine_options
from quantflow.runtime.environment import Environment, held
from quantflow.runtime.vllm import Session, vllm_session
from tests.runtime.fakes.vllm import table
from tests.runtime.faking import PARAMS, fake_environment, fake_model

WORKLOAD = Workload(length=32, requests=4, batch_tokens=64)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    return fake_environment(tmp_path / "cache", monkeypatch)


@contextmanager
def session(environment: Environment, folder: Path) -> Iterator[Session]:
    log = folder.parent / "log.txt"
    with vllm_session(environment, folder, PARAMS, "float32", WORKLOAD, log) as opened:
        yield opened


def test_scores_are_of_the_tokens_that_came_and_of_the_likeliest_first(
    environment: Environment, tmp_path: Path
) -> None:
    expected = table(400, artifact=False)
    with session(environment, fake_model(tmp_path / "model")) as opened:
        first, second = opened.score([[5, 6, 7, 8], [9, 1]], [2, 1], top=3)
    assert first.target == pytest.approx([expected[6, 7], expected[7, 8]])
    assert second.target == pytest.approx([expected[9, 1]])
    likeliest = np.argsort(-expected[6])[:3].tolist()
    assert list(first.ids[0]) in (likeliest, [*likeliest, 7])
    assert list(first.logprobs[0]) == sorted(first.logprobs[0], reverse=True)


def test_requests_that_finish_in_another_order_keep_their_places(
    environment: Environment, tmp_path: Path
) -> None:
    expected = table(400, artifact=False)
    with session(environment, fake_model(tmp_path / "model")) as opened:
        made = opened.generate([[1], [2], [3]], 2)
    assert [text.ids[0] for text in made] == [int(expected[token].argmax()) for token in (1, 2, 3)]
    assert made[0].text == " ".join(map(str, made[0].ids))


def test_every_request_is_timed_from_the_moment_all_were_sent(
    environment: Environment, tmp_path: Path
) -> None:
    with session(environment, fake_model(tmp_path / "model")) as opened:
        timing = opened.time([(1, 2), (3, 4)], 5)
        used = opened.memory()
    assert len(timing.first) == len(timing.last) == 2
    assert all(0 < first < last for first, last in zip(timing.first, timing.last, strict=True))
    assert used.peak >= used.resident > 10_000_000
    assert used.device == 0


def test_a_measurement_names_versions_kernels_threads_and_instruction_set(
    environment: Environment, tmp_path: Path
) -> None:
    with session(environment, fake_model(tmp_path / "model")) as opened:
        loaded = opened.loaded
    assert (loaded.version, loaded.dtype) == ("0.32.0", "float32")
    assert loaded.options["layers"] == "UnquantizedLinearMethod × 12"
    assert loaded.options["instruction_set"] == "AVX2"
    assert loaded.options["torch"] == "2.13.0+cpu"


def test_what_vllm_refuses_is_said_in_its_own_words(environment: Environment, tmp_path: Path) -> None:
    with (
        pytest.raises(ArtifactError, match=r"^\S+model: vLLM cannot run it: bad group$"),
        session(environment, fake_model(tmp_path / "model", fake="refuse")),
    ):
        pass


def test_a_missing_kernel_shows_when_the_model_is_loaded_and_not_hours_later(
    environment: Environment, tmp_path: Path
) -> None:
    with (
        pytest.raises(ArtifactError, match=r"no kernel `cpu_gemm_wna16`.*\n.*AVX-512"),
        session(environment, fake_model(tmp_path / "model", fake="no-kernel")),
    ):
        pass


def test_a_death_is_told_with_the_last_words_of_the_log(environment: Environment, tmp_path: Path) -> None:
    with (
        pytest.raises(ArtifactError, match=r"ended with exit code 3\n(.*\n)*.*Segmentation fault"),
        session(environment, fake_model(tmp_path / "model", fake="die")),
    ):
        pass


def test_no_answer_in_time_ends_the_worker(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "ASK_TIMEOUT", 0.5)
    started = time.monotonic()
    with (
        pytest.raises(ArtifactError, match=r"no answer within [01] s"),
        session(environment, fake_model(tmp_path / "model", fake="hang")),
    ):
        pass
    assert time.monotonic() - started < 50


def test_the_environment_cannot_be_removed_under_a_session(environment: Environment, tmp_path: Path) -> None:
    with (
        session(environment, fake_model(tmp_path / "model")),
        pytest.raises(RuntimeUnavailableError, match="another process uses it"),
        held(environment.name, exclusive=True),
    ):
        pass


def test_the_worker_dies_with_whoever_started_it_however_that_ends(
    environment: Environment, tmp_path: Path
) -> None:
    fake_model(tmp_path / "model")
    code = (
        "import time\n"
        "from pathlib import Path\n"
        "from quantflow.runtime.environment import find_environment\n"
        "from tests.runtime.test_vllm import session\n"
        f"with session(find_environment('vllm', 'cpu'), Path('{tmp_path / 'model'}')) as opened:\n"
        "    print(opened._worker.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert Path(f"/proc/{worker}").exists()
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while _alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(worker)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nothing_of_ours_is_on_the_workers_path(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ours has a module named vllm next to the worker, and PYTHONPATH leads to this checkout.
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "quantflow" / "runtime"))
    with session(environment, fake_model(tmp_path / "model")) as opened:
        assert opened.loaded.version == "0.32.0"


def test_the_cache_has_room_for_all_requests_at_once() -> None:
    config = {
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
    }
    workload = Workload(length=4096, requests=16, batch_tokens=2048)
    a_token = 2 * 32 * 8 * 128 * 2
    assert cache_bytes(config, workload, "bfloat16") > 16 * 4096 * a_token
    assert cache_bytes(config, workload, "float32") == 2 * cache_bytes(config, workload, "bfloat16")
    assert cache_bytes(config, Workload(8, 1, 64), "bfloat16") == engine.SMALLEST_CACHE


def test_what_could_change_a_figure_is_pinned() -> None:
    options = engine_options(WORKLOAD, "float32", 1 << 30, PARAMS)
    assert options["enable_prefix_caching"] is False
    assert options["generation_config"] == "vllm"
    assert options["dtype"] == "float32"
    assert options["kv_cache_memory_bytes"] == 1 << 30
    assert json.dumps(options)  # it travels as JSON


def test_vllm_reports_nothing_to_anyone_and_fetches_nothing(environment: Environment) -> None:
    variables = engine.engine_variables(PARAMS, environment)
    assert variables["VLLM_NO_USAGE_STATS"] == variables["DO_NOT_TRACK"] == variables["HF_HUB_OFFLINE"] == "1"
