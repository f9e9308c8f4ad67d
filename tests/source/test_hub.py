"""A hub id becomes a commit and the files of that commit, from a hub that this test plays itself."""

from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file

from quantflow.errors import RecipeError, SourceError
from quantflow.pipeline.digest import file_digest
from quantflow.source import hub_download
from quantflow.source.checkpoint import Checkpoint, load_checkpoint
from quantflow.source.hub import fetch_snapshot, resolve_commit
from quantflow.source.identify import source_params
from quantflow.source.stage import run
from quantflow.source.uri import parse
from tests.reporting import RecordingReporter
from tests.source.hub_server import COMMIT, REPOSITORY, Hub, serving

WEIGHTS = "model.safetensors"
TOKEN = "hf_NotToBeSeenAnywhere"


def checkpoint_of(output: Path, reporter: RecordingReporter, **options: Any) -> Checkpoint:
    output.mkdir()
    params = source_params(parse(REPOSITORY, output), "main", file_digest, **options)
    run(params, {}, output, reporter)
    return load_checkpoint(output)


def blobs(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "models--northlight--tiny" / "blobs"


def ranges(hub: Hub, name: str) -> list[str | None]:
    return [request.headers.get("Range") for request in hub.fetched(name)]


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
    checkpoint = checkpoint_of(tmp_path / "out", reporter)
    names = {path.name for path in checkpoint.folder.iterdir()}
    assert names == {path.name for path in float16_folder.iterdir()}
    assert {n: checkpoint.files[n] for n in names} == {n: file_digest(float16_folder / n) for n in names}
    assert not (checkpoint.folder / WEIGHTS).is_symlink()
    assert not hub.fetched("README.md")
    assert all(len(hub.fetched(name)) == 1 for name in names)


def test_what_is_in_the_cache_does_without_the_hub(
    hub: Hub, tmp_path: Path, reporter: RecordingReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = checkpoint_of(tmp_path / "first", reporter)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.asked)
    assert checkpoint_of(tmp_path / "second", reporter).identity == first.identity
    assert len(hub.asked) == asked


def test_what_is_in_the_cache_does_with_a_hub_that_is_down(
    hub: Hub, tmp_path: Path, reporter: RecordingReporter
) -> None:
    first = checkpoint_of(tmp_path / "first", reporter)
    hub.mishaps.statuses["/"] = [(503, {})] * 100
    assert checkpoint_of(tmp_path / "second", reporter).identity == first.identity


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


def test_offline_with_an_incomplete_cache_says_that_it_is_the_setting(
    hub: Hub, tmp_path: Path, reporter: RecordingReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="HF_HUB_OFFLINE is set"):
        resolve_commit(REPOSITORY, "main")
    with pytest.raises(SourceError, match="not complete in the local cache"):
        fetch_snapshot(REPOSITORY, COMMIT, tmp_path / "out", reporter)


def test_a_line_that_breaks_half_way_is_taken_up_where_it_broke(
    hub: Hub, files: dict[str, bytes], tmp_path: Path, reporter: RecordingReporter
) -> None:
    hub.mishaps.drops[WEIGHTS] = [1000, 5000]
    checkpoint = checkpoint_of(tmp_path / "out", reporter)
    assert (checkpoint.folder / WEIGHTS).read_bytes() == files[WEIGHTS]
    assert ranges(hub, WEIGHTS) == [None, "bytes=1000-", "bytes=6000-"]
    assert list(blobs(tmp_path).glob("*.incomplete")) == []


def test_a_server_that_knows_no_parts_is_asked_for_the_whole_again(
    hub: Hub, files: dict[str, bytes], tmp_path: Path, reporter: RecordingReporter
) -> None:
    hub.mishaps.drops[WEIGHTS] = [1000]
    hub.mishaps.ignores_ranges = True
    checkpoint = checkpoint_of(tmp_path / "out", reporter)
    assert (checkpoint.folder / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_a_line_that_breaks_at_once_again_and_again_is_given_up_and_what_came_is_kept(
    hub: Hub, tmp_path: Path, reporter: RecordingReporter
) -> None:
    hub.mishaps.drops[WEIGHTS] = [1000, *[0] * hub_download.FRUITLESS_ATTEMPTS]
    with pytest.raises(SourceError, match="cannot be reached"):
        checkpoint_of(tmp_path / "out", reporter)
    partial = blobs(tmp_path) / f"{hub.etag(WEIGHTS)}.quantflow.incomplete"
    assert partial.stat().st_size == 1000
    checkpoint_of(tmp_path / "again", reporter)
    assert ranges(hub, WEIGHTS)[-1] == "bytes=1000-"


def test_a_hub_that_is_out_of_order_for_a_moment_is_asked_again(
    hub: Hub, tmp_path: Path, reporter: RecordingReporter
) -> None:
    hub.mishaps.statuses[f"resolve/{COMMIT}/{WEIGHTS}"] = [(503, {}), (429, {})]
    checkpoint_of(tmp_path / "out", reporter)
    assert len(hub.fetched(WEIGHTS)) == 3


@pytest.mark.parametrize(
    ("status", "headers", "complaint"),
    [
        (401, {"X-Error-Message": "Invalid credentials in Authorization header"}, "not accept your token"),
        (403, {}, "forbids access"),
        (404, {}, "no such file or address"),
        (404, {"X-Error-Code": "EntryNotFound"}, "no such file or address"),
        (407, {}, "the proxy wants a user and a password"),
        (418, {}, r"refuses the request \(it answers 418\)"),
        (429, {}, "too many requests"),
        (503, {}, r"out of order for the moment \(it answers 503\)"),
    ],
)
def test_every_answer_of_the_hub_has_plain_words(
    status: int,
    headers: dict[str, str],
    complaint: str,
    hub: Hub,
    tmp_path: Path,
    reporter: RecordingReporter,
) -> None:
    hub.mishaps.statuses[f"resolve/{COMMIT}/{WEIGHTS}"] = [(status, headers)] * 20
    with pytest.raises(SourceError, match=complaint) as caught:
        checkpoint_of(tmp_path / "out", reporter)
    assert caught.value.hint


def test_nobody_there_is_an_error_of_the_source(
    files: dict[str, bytes], hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Hub(files)) as gone:
        pass
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", gone.url)
    with pytest.raises(SourceError, match="the hub cannot be reached"):
        resolve_commit(REPOSITORY, "main")


def test_a_page_in_the_hub_s_place_is_not_taken_for_a_hub(hub: Hub) -> None:
    hub.mishaps.statuses["/api/"] = [(200, {"Content-Length": "2", "Content-Type": "text/html"})]
    with pytest.raises(SourceError, match="not a model hub"):
        resolve_commit(REPOSITORY, "main")


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
@pytest.mark.parametrize("change", ["other", "shorter", "longer"])
def test_content_that_is_not_what_the_hub_lists_is_refused_and_not_kept(
    name: str, change: str, hub: Hub, files: dict[str, bytes], tmp_path: Path, reporter: RecordingReporter
) -> None:
    sound = files[name]
    changed = {"other": sound[:-1] + b"?", "shorter": sound[:-7], "longer": sound + b"more"}
    hub.mishaps.content[name] = changed[change]
    with pytest.raises(SourceError, match=f"gave {name} another content than it lists"):
        checkpoint_of(tmp_path / "out", reporter)
    assert not list(blobs(tmp_path).glob(f"{hub.etag(name)}*"))
    hub.mishaps.content.clear()
    checkpoint_of(tmp_path / "again", reporter)


def test_a_damaged_cache_is_noticed_and_mended_by_the_next_run(
    hub: Hub, files: dict[str, bytes], tmp_path: Path, reporter: RecordingReporter
) -> None:
    fetch_snapshot(REPOSITORY, COMMIT, tmp_path / "first", reporter)
    blob = blobs(tmp_path) / hub.etag(WEIGHTS)
    blob.write_bytes(files[WEIGHTS][:-1] + b"?")
    with pytest.raises(SourceError, match="copy of model"):
        fetch_snapshot(REPOSITORY, COMMIT, tmp_path / "second", reporter)
    fetch_snapshot(REPOSITORY, COMMIT, tmp_path / "third", reporter)
    assert (tmp_path / "third" / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_a_token_opens_a_private_model_and_is_seen_nowhere(
    hub: Hub,
    tmp_path: Path,
    reporter: RecordingReporter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub.mishaps.token = TOKEN
    with pytest.raises(RecipeError, match="does not show it to you"):
        resolve_commit(REPOSITORY, "main")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    checkpoint_of(tmp_path / "out", reporter)
    hub.mishaps.token = "another"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    with pytest.raises(SourceError, match="does not accept your token") as refused:
        fetch_snapshot(REPOSITORY, COMMIT, tmp_path / "refused", reporter)
    seen = [str(refused.value), caplog.text, *capsys.readouterr(), *map(str, reporter.events)]
    seen += [str(reporter.progress)]
    seen += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in seen if TOKEN in text]


def test_the_token_is_not_shown_to_the_server_that_the_hub_sends_us_on_to(
    hub: Hub,
    files: dict[str, bytes],
    tmp_path: Path,
    reporter: RecordingReporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.mishaps.token = TOKEN
    with serving(Hub(files)) as store:
        hub.mishaps.elsewhere[WEIGHTS] = store.url
        checkpoint_of(tmp_path / "out", reporter)
        assert len(store.fetched(WEIGHTS)) == 1
        assert not [request for request in store.asked if "Authorization" in request.headers]


def test_pickled_weights_are_fetched_and_converted_only_where_the_recipe_allows_it(
    hub: Hub, files: dict[str, bytes], float16_folder: Path, tmp_path: Path, reporter: RecordingReporter
) -> None:
    torch.save(load_file(float16_folder / WEIGHTS), tmp_path / "pytorch_model.bin")
    del files[WEIGHTS]
    hub.files = files | {"pytorch_model.bin": (tmp_path / "pytorch_model.bin").read_bytes()}
    with pytest.raises(SourceError, match=r"neither model\.safetensors nor"):
        checkpoint_of(tmp_path / "refused", reporter)
    assert not hub.fetched("pytorch_model.bin")
    checkpoint = checkpoint_of(tmp_path / "allowed", reporter, allow_pickle=True)
    assert "weights-unpickled" in reporter.codes()
    expected = load_file(float16_folder / WEIGHTS)
    stored = load_file(checkpoint.folder / WEIGHTS)
    assert all(torch.equal(stored[name], tensor) for name, tensor in expected.items())
    assert sorted(path.name for path in (tmp_path / "allowed").iterdir()) == ["checkpoint", "source.json"]
