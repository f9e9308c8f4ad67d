"""A hub id becomes a commit and the files of that commit, from a hub that this test plays itself."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import pytest

from quantflow.errors import RecipeError, SourceError
from quantflow.pipeline.digest import file_digest
from quantflow.source.checkpoint import load_checkpoint
from quantflow.source.hub import resolve_commit
from quantflow.source.identify import source_params
from quantflow.source.stage import run
from quantflow.source.uri import parse
from tests.reporting import RecordingReporter

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "northlight/tiny"


class Hub(ThreadingHTTPServer):
    """One repository of one commit, one that is gated, and nothing else."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *args: object) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        status, headers, body = self._find(path)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _find(self, path: str) -> tuple[int, dict[str, str], bytes]:
        api = f"/api/models/{REPOSITORY}"
        if path in (api, f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
            siblings = [{"rfilename": name} for name in self.server.files]
            return 200, {}, json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}).encode()
        if path == f"{api}/tree/{COMMIT}":
            tree = [
                {"type": "file", "path": name, "size": len(content), "oid": f"{number:040x}"}
                for number, (name, content) in enumerate(self.server.files.items())
            ]
            return 200, {}, json.dumps(tree).encode()
        prefix = f"/{REPOSITORY}/resolve/{COMMIT}/"
        if path.startswith(prefix) and path.removeprefix(prefix) in self.server.files:
            name = path.removeprefix(prefix)
            number = list(self.server.files).index(name)
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{number:040x}"'}
            return 200, headers, self.server.files[name]
        if path.startswith(api):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        if "gated" in path:
            return 403, {"X-Error-Code": "GatedRepo"}, b"{}"
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"


@pytest.fixture
def hub(float16_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {path.name: path.read_bytes() for path in sorted(float16_folder.iterdir())}
    server = Hub(files | {"README.md": b"A note.", "pytorch_model.bin": b"pickle"})
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.url)
    monkeypatch.setattr(
        huggingface_hub.constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        server.url + "/{repo_id}/resolve/{revision}/{filename}",
    )
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_branch_is_resolved_to_its_commit(hub: Hub) -> None:
    assert resolve_commit(REPOSITORY, "main") == COMMIT
    assert resolve_commit(REPOSITORY, None) == COMMIT


def test_a_commit_is_not_asked_for(hub: Hub) -> None:
    assert resolve_commit(REPOSITORY, COMMIT) == COMMIT
    assert hub.asked == []


def test_the_files_of_the_model_are_fetched_and_no_others(
    hub: Hub, float16_folder: Path, tmp_path: Path, reporter: RecordingReporter
) -> None:
    params = source_params(parse(REPOSITORY, tmp_path), "main", file_digest)
    assert (params.revision, params.identity) == (COMMIT, COMMIT)
    output = tmp_path / "out"
    output.mkdir()
    run(params, {}, output, reporter)
    checkpoint = load_checkpoint(output)
    names = {path.name for path in checkpoint.folder.iterdir()}
    assert names == {path.name for path in float16_folder.iterdir()}
    assert checkpoint.files["model.safetensors"] == file_digest(float16_folder / "model.safetensors")
    assert not (checkpoint.folder / "model.safetensors").is_symlink()


def test_what_is_in_the_cache_does_without_the_hub(
    hub: Hub, tmp_path: Path, reporter: RecordingReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    ref = parse(REPOSITORY, tmp_path)
    run(source_params(ref, "main", file_digest), {}, tmp_path / "first", reporter)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.asked)
    run(source_params(ref, "main", file_digest), {}, tmp_path / "second", reporter)
    assert load_checkpoint(tmp_path / "second").identity == load_checkpoint(tmp_path / "first").identity
    assert len(hub.asked) == asked


@pytest.mark.parametrize(
    ("repository", "revision", "complaint"),
    [
        ("northlight/absent", None, "the hub has no such model"),
        ("northlight/gated", None, "gated"),
        (REPOSITORY, "absent", "no such revision"),
    ],
)
def test_what_the_hub_does_not_give_is_a_mistake_of_the_recipe(
    repository: str, revision: str | None, complaint: str, hub: Hub
) -> None:
    with pytest.raises(RecipeError, match=complaint) as caught:
        resolve_commit(repository, revision)
    assert caught.value.hint


def test_a_hub_out_of_reach_is_an_error_of_the_source(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="cannot be reached"):
        resolve_commit(REPOSITORY, "main")
