"""What the environment says of the hub is kept to, and a killed download goes on: in processes of their
own."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quantflow.errors import SourceError
from quantflow.source.hub import fetch_snapshot, resolve_commit
from tests.reporting import RecordingReporter
from tests.source.hub_server import COMMIT, REPOSITORY, Hub, serving

ROOT = Path(__file__).parents[2]
WEIGHTS = "model.safetensors"
TOKEN = "hf_NotToBeSeenAnywhere"
FETCH = f"""
import sys
from pathlib import Path
from quantflow.errors import QuantFlowError
from quantflow.source.hub import fetch_snapshot, resolve_commit
from tests.reporting import RecordingReporter
name = "{REPOSITORY}"
try:
    fetch_snapshot(name, resolve_commit(name, None), Path(sys.argv[1]), RecordingReporter())
except QuantFlowError as error:
    sys.exit(str(error))
"""


def subprocess_environment(hub: Hub, tmp_path: Path, **changes: str) -> dict[str, str]:
    theirs = ("_PROXY", "_CERT_FILE", "_CERT_DIR", "_CA_BUNDLE")
    mine = {name: value for name, value in os.environ.items() if not name.upper().endswith(theirs)}
    home = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_CACHE": str(tmp_path / "cache")}
    return mine | home | {"HF_ENDPOINT": hub.url, "PYTHONPATH": str(ROOT)} | changes


def fetched_apart(hub: Hub, tmp_path: Path, **changes: str) -> str:
    """Fetch in a process of its own with this environment; what it complains of."""
    done = subprocess.run(
        [sys.executable, "-c", FETCH, str(tmp_path / "apart")],
        env=subprocess_environment(hub, tmp_path, **changes),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert (done.returncode == 0) == (done.stderr == ""), done.stderr
    return done.stderr


def test_the_environment_names_hub_and_token(hub: Hub, tmp_path: Path) -> None:
    hub.mishaps.token = TOKEN
    assert fetched_apart(hub, tmp_path, HF_TOKEN=TOKEN) == ""
    assert (tmp_path / "apart" / WEIGHTS).is_file()


def test_the_environment_names_a_proxy(hub: Hub, tmp_path: Path) -> None:
    # The server plays the proxy, too: the hub's own address leads nowhere.
    through = {"HF_ENDPOINT": "http://hub.invalid", "HTTP_PROXY": hub.url}
    assert fetched_apart(hub, tmp_path, **through) == ""
    assert hub.fetched(WEIGHTS)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this machine that nobody vouches for, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hub"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "hub.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "hub.pem", folder / "key.pem"


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_the_environment_names_a_certificate_to_trust(
    variable: str, certificate: tuple[Path, Path], files: dict[str, bytes], tmp_path: Path
) -> None:
    server = Hub(files)
    server.secure(*certificate)
    with serving(server):
        assert fetched_apart(server, tmp_path, **{variable: str(certificate[0])}) == ""
        assert (tmp_path / "apart" / WEIGHTS).is_file()


def test_a_certificate_that_nobody_vouches_for_is_told_with_what_to_set(
    certificate: tuple[Path, Path], files: dict[str, bytes], tmp_path: Path
) -> None:
    server = Hub(files)
    server.secure(*certificate)
    with serving(server):
        complaint = fetched_apart(server, tmp_path)
    assert "certificate is not trusted" in complaint
    assert "REQUESTS_CA_BUNDLE" in complaint
    assert server.asked == []


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_bundle_that_is_none_is_named(
    content: str | None, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    with pytest.raises(SourceError, match="certificates to trust cannot be read") as caught:
        resolve_commit(REPOSITORY, "main")
    assert caught.value.where == str(bundle)


def test_offline_mode_of_the_environment_is_kept_to(hub: Hub, tmp_path: Path) -> None:
    assert "HF_HUB_OFFLINE is set" in fetched_apart(hub, tmp_path, HF_HUB_OFFLINE="1")
    assert hub.asked == []


def test_a_killed_process_s_download_is_taken_up_by_the_next(
    hub: Hub, files: dict[str, bytes], tmp_path: Path, reporter: RecordingReporter
) -> None:
    hub.mishaps.stalls[WEIGHTS] = 100_000
    command = [sys.executable, "-c", FETCH, str(tmp_path / "apart")]
    process = subprocess.Popen(command, env=subprocess_environment(hub, tmp_path))
    blobs = tmp_path / "cache" / "models--northlight--tiny" / "blobs"
    partial = blobs / f"{hub.etag(WEIGHTS)}.quantflow.incomplete"
    deadline = time.monotonic() + 60
    while not (partial.exists() and partial.stat().st_size > 50_000) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = partial.stat().st_size
    hub.mishaps.stalls.clear()
    fetch_snapshot(REPOSITORY, COMMIT, tmp_path / "out", reporter)
    assert there > 50_000
    assert hub.fetched(WEIGHTS)[-1].headers["Range"] == f"bytes={there}-"
    assert (tmp_path / "out" / WEIGHTS).read_bytes() == files[WEIGHTS]
