"""A model hub of our own on this machine: one repository of one commit, and any mishap that is asked for."""

import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "northlight/tiny"
LARGE = ".safetensors"  # what the hub keeps by SHA-256, and all else by git's hash


@dataclass
class Request:
    """What the server was asked."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Mishaps:
    """What goes wrong, by the name of a file or a part of an address.

    Attributes:
        drops: File → after how many bytes of each answer the line breaks; one break for each number.
        statuses: Part of an address → what is answered instead, once for each number, with headers.
        content: File → what is sent in its place.
        ignores_ranges: Whether a part asked for is answered with the whole.
        stalls: File → after how many bytes an answer waits for ever.
        elsewhere: File → address of the server that really has it.
        token: What a request has to bring, if anything.
    """

    drops: dict[str, list[int]] = field(default_factory=dict)
    statuses: dict[str, list[tuple[int, dict[str, str]]]] = field(default_factory=dict)
    content: dict[str, bytes] = field(default_factory=dict)
    ignores_ranges: bool = False
    stalls: dict[str, int] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)
    token: str | None = None


class Hub(ThreadingHTTPServer):
    """The server; `asked` is every request in order."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.mishaps = Mishaps()
        self.asked: list[Request] = []
        self.closing = threading.Event()
        self.is_secure = False

    @property
    def url(self) -> str:
        return f"{'https' if self.is_secure else 'http'}://127.0.0.1:{self.server_port}"

    def secure(self, certificate: Path, key: Path) -> None:
        """Answer with this certificate from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.is_secure = True

    def etag(self, name: str) -> str:
        content = self.files[name]
        if name.endswith(LARGE):
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()

    def fetched(self, name: str) -> list[Request]:
        """Requests for the content of a file."""
        return [r for r in self.asked if r.method == "GET" and r.path.endswith(f"/{name}")]

    def handle_error(self, *args: object) -> None:
        """Be silent about a client that hung up."""


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *args: object) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        # A proxy is asked for the whole address of another server.
        path = self.path.partition("?")[0].removeprefix("http://hub.invalid")
        self.server.asked.append(Request(self.command, path, dict(self.headers.items())))
        status, headers, body = self._find(path)
        name = path.rpartition("/")[2]
        begin = self._range_begin() if status == 200 and "/resolve/" in path else 0
        if begin:
            status, headers = 206, {**headers, "Content-Range": f"bytes {begin}-{len(body) - 1}/{len(body)}"}
            body = body[begin:]
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if not with_body:
            return
        drops = self.server.mishaps.drops.get(name)
        if drops:
            self.wfile.write(body[: drops.pop(0)])
            self.close_connection = True
            return
        if name in self.server.mishaps.stalls:
            self.wfile.write(body[: self.server.mishaps.stalls[name]])
            self.wfile.flush()
            self.server.closing.wait()
            return
        self.wfile.write(body)

    def _range_begin(self) -> int:
        asked = self.headers.get("Range", "")
        if self.server.mishaps.ignores_ranges or not asked.startswith("bytes="):
            return 0
        return int(asked.removeprefix("bytes=").partition("-")[0])

    def _find(self, path: str) -> tuple[int, dict[str, str], bytes]:
        mishaps = self.server.mishaps
        for part, answers in mishaps.statuses.items():
            if part in path and answers:
                status, headers = answers.pop(0)
                return status, headers, b"{}"
        if mishaps.token is not None and self.headers.get("Authorization") != f"Bearer {mishaps.token}":
            if "Authorization" in self.headers:
                return 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b"{}"
            return 401, {"X-Error-Code": "RepoNotFound"}, b"{}"
        api = f"/api/models/{REPOSITORY}"
        if path in (api, f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
            siblings = [{"rfilename": name} for name in self.server.files]
            return 200, {}, json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}).encode()
        if path == f"{api}/tree/{COMMIT}":
            return 200, {}, json.dumps([self._entry(name) for name in self.server.files]).encode()
        prefix = f"/{REPOSITORY}/resolve/{COMMIT}/"
        name = path.removeprefix(prefix)
        if path.startswith(prefix) and name in self.server.files:
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{self.server.etag(name)}"'}
            if name in mishaps.elsewhere:
                headers |= {
                    "X-Linked-ETag": headers["ETag"],
                    "X-Linked-Size": str(len(self.server.files[name])),
                }
                return 302, {**headers, "Location": mishaps.elsewhere[name] + path}, b""
            return 200, headers, mishaps.content.get(name, self.server.files[name])
        if path.startswith(api):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        if "gated" in path:
            return 403, {"X-Error-Code": "GatedRepo"}, b"{}"
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    def _entry(self, name: str) -> dict[str, object]:
        size, etag = len(self.server.files[name]), self.server.etag(name)
        entry: dict[str, object] = {"type": "file", "path": name, "size": size, "oid": etag}
        if name.endswith(LARGE):
            entry |= {"oid": "0" * 40, "lfs": {"size": size, "oid": etag, "pointerSize": 130}}
        return entry


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Let a hub answer."""
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        hub.shutdown()
        thread.join()
        hub.server_close()
