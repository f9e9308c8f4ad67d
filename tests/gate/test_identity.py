"""What is around the weights has to be the baseline's; how a file is written does not matter."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quantflow.gate.identity import differences, identity_criterion
from quantflow.gate.verdict import Verdict

FILES: dict[str, Any] = {
    "config.json": {
        "vocab_size": 400,
        "max_position_embeddings": 256,
        "eos_token_id": 2,
        "rope_theta": 10000.0,
    },
    "generation_config.json": {"eos_token_id": 2, "transformers_version": "5.17.0"},
    "tokenizer.json": {
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]},
        "truncation": None,
    },
    "tokenizer_config.json": {"eos_token": {"content": "<e>", "special": True}, "chat_template": "{{ x }}\n"},
}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    baseline = tmp_path / "baseline"
    baseline.mkdir()
    for name, content in FILES.items():
        (baseline / name).write_text(json.dumps(content))
    return baseline, Path(shutil.copytree(baseline, tmp_path / "artifact"))


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content, indent=3))


def test_a_copy_is_the_baselines(folders: tuple[Path, Path]) -> None:
    assert differences(*folders) == {}
    assert identity_criterion("int4", {}, required=True).verdict is Verdict.PASS


HARMLESS: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "merges as pairs": ("tokenizer.json", lambda c: c["model"].update(merges=[["a", "b"]])),
    "a truncation that was set": ("tokenizer.json", lambda c: c.update(truncation={"max_length": 8})),
    "a token as text": ("tokenizer_config.json", lambda c: c.update(eos_token="<e>")),
    "another version of transformers": (
        "generation_config.json",
        lambda c: c.update(transformers_version="4"),
    ),
    "end tokens as a list": ("generation_config.json", lambda c: c.update(eos_token_id=[2])),
    "rope as transformers 5 writes it": (
        "config.json",
        lambda c: c.update(rope_parameters={"rope_theta": c.pop("rope_theta"), "rope_type": "default"}),
    ),
    "the default temperature said": ("generation_config.json", lambda c: c.update(temperature=1.0)),
    "the default number of beams said": ("generation_config.json", lambda c: c.update(num_beams=1)),
    "another dtype": ("config.json", lambda c: c.update(dtype="float16")),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_how_it_is_written_does_not_matter(folders: tuple[Path, Path], name: str) -> None:
    file, edit = HARMLESS[name]
    change(folders[1] / file, edit)
    assert differences(*folders) == {}


def test_a_template_in_a_file_of_its_own_is_the_same_template(folders: tuple[Path, Path]) -> None:
    change(folders[1] / "tokenizer_config.json", lambda c: c.pop("chat_template"))
    (folders[1] / "chat_template.jinja").write_text("{{ x }}")
    assert differences(*folders) == {}


HARMFUL: dict[str, tuple[str, str, Callable[[dict[str, Any]], object]]] = {
    "a token swapped": ("tokenizer", "tokenizer.json", lambda c: c["model"].update(vocab={"b": 0, "a": 1})),
    "another merge": ("tokenizer", "tokenizer.json", lambda c: c["model"].update(merges=["b a"])),
    "a normalizer": ("tokenizer", "tokenizer.json", lambda c: c.update(normalizer={"type": "Lowercase"})),
    "a BOS that is put before": (
        "tokenizer",
        "tokenizer_config.json",
        lambda c: c.update(add_bos_token=True),
    ),
    "another template": (
        "chat template",
        "tokenizer_config.json",
        lambda c: c.update(chat_template="{{ y }}"),
    ),
    "no template": ("chat template", "tokenizer_config.json", lambda c: c.pop("chat_template")),
    "another end": ("generation config", "generation_config.json", lambda c: c.update(eos_token_id=1)),
    "sampling": ("generation config", "generation_config.json", lambda c: c.update(do_sample=True)),
    "tokens that are never said": (
        "generation config",
        "generation_config.json",
        lambda c: c.update(suppress_tokens=[2]),
    ),
    "an end that is put off": (
        "generation config",
        "generation_config.json",
        lambda c: c.update(min_new_tokens=64),
    ),
    "a larger vocabulary": ("vocabulary", "config.json", lambda c: c.update(vocab_size=401)),
    "a shorter context": ("context length", "config.json", lambda c: c.update(max_position_embeddings=128)),
    "another rope": ("context length", "config.json", lambda c: c.update(rope_theta=500000.0)),
    "a scaled rope": (
        "context length",
        "config.json",
        lambda c: c.update(rope_scaling={"type": "linear", "factor": 2.0}),
    ),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_what_changes_how_the_model_is_used_is_named(folders: tuple[Path, Path], name: str) -> None:
    aspect, file, edit = HARMFUL[name]
    change(folders[1] / file, edit)
    found = differences(*folders)
    assert list(found) == [aspect]
    result = identity_criterion("int4", found, required=True)
    assert result.verdict is Verdict.FAIL
    assert aspect in result.reason


def test_a_tokenizer_without_tokenizer_json_is_compared_by_its_own_files(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer.model").write_bytes(b"pieces")
    assert differences(*folders) == {}
    (folders[1] / "tokenizer.model").write_bytes(b"other pieces")
    assert "tokenizer" in differences(*folders)


GENAI = {
    "model": {"bos_token_id": 1, "eos_token_id": 2, "vocab_size": 400, "context_length": 256, "decoder": {}},
    "search": {"do_sample": False, "top_k": 50, "top_p": 1.0, "temperature": 1.0, "max_length": 256},
}


@pytest.mark.parametrize(
    ("edit", "aspect"),
    [
        (lambda settings: settings["model"].update(bos_token_id=7), None),  # made up where there is none
        (lambda settings: settings["model"].update(eos_token_id=[2, 5]), "generation config"),
        (lambda settings: settings["search"].update(top_k=1), "generation config"),
        (lambda settings: settings["model"].update(vocab_size=512), "vocabulary"),
        (lambda settings: settings["model"].update(context_length=64), "context length"),
    ],
)
def test_a_bare_graph_is_compared_by_its_settings_of_genai(
    folders: tuple[Path, Path], edit: Callable[[dict[str, Any]], object], aspect: str | None
) -> None:
    baseline, artifact = folders
    for name in ("config.json", "generation_config.json"):
        (artifact / name).unlink()
    # The builder says the context's length in the tokenizer's settings, too.
    change(artifact / "tokenizer_config.json", lambda settings: settings.update(model_max_length=256))
    (artifact / "genai_config.json").write_text(json.dumps(GENAI))
    assert differences(baseline, artifact) == {}
    change(artifact / "genai_config.json", edit)
    assert list(differences(baseline, artifact)) == ([aspect] if aspect else [])


def test_a_graph_with_nothing_beside_it_is_not_the_baselines(folders: tuple[Path, Path]) -> None:
    baseline, artifact = folders
    for path in artifact.iterdir():
        path.unlink()
    assert {"tokenizer", "vocabulary", "context length"} <= set(differences(baseline, artifact))
