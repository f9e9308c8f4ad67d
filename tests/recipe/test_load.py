"""What a recipe that loads turns into."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from quantflow.recipe.artifacts import AwqArtifact
from quantflow.recipe.load import load_recipe
from quantflow.recipe.margins import Margins, margins
from tests.recipe.conftest import SOUND, Load

RECIPES = Path(__file__).parents[2] / "recipes"


def test_defaults_are_those_of_the_documentation(load: Load) -> None:
    recipe = load()
    assert (recipe.data.calibration.windows, recipe.data.calibration.length) == (512, 2048)
    assert recipe.data.evaluation.length == 2048
    split = recipe.data.split
    assert (split.calibration, split.selection, split.evaluation) == (0.5, 0.25, 0.25)
    (artifact,) = recipe.artifacts
    assert isinstance(artifact, AwqArtifact)
    assert (artifact.method, artifact.group_size) == ("awq", 128)
    assert (recipe.runtime.name, recipe.runtime.device, recipe.runtime.batch_tokens) == (
        "torch",
        "auto",
        2048,
    )
    assert recipe.model.revision is None and recipe.report.title is None and recipe.data.seed == 0


def test_data_files_become_sorted_absolute_paths(load: Load, folder: Path) -> None:
    found = load().data.files
    assert found == (str(folder / "texts/a.jsonl"), str(folder / "texts/b.jsonl"))


def test_a_file_named_twice_is_read_once(load: Load, folder: Path) -> None:
    recipe = load(
        SOUND.replace("[texts/*.jsonl]", "[texts/a.jsonl, texts/*.jsonl, ./texts/../texts/b.jsonl]")
    )
    assert recipe.data.files == (str(folder / "texts/a.jsonl"), str(folder / "texts/b.jsonl"))


def test_a_file_whose_name_looks_like_a_glob_is_that_file(load: Load, folder: Path) -> None:
    (folder / "texts" / "[a].jsonl").write_text("")
    recipe = load(SOUND.replace("[texts/*.jsonl]", '["texts/[a].jsonl"]'))
    assert recipe.data.files == (str(folder / "texts/[a].jsonl"),)


def test_double_star_looks_in_folders_below_and_not_in_hidden_ones(load: Load, folder: Path) -> None:
    for name in ("deep", ".hidden"):
        (folder / "texts" / name).mkdir()
        (folder / "texts" / name / "c.jsonl").write_text("")
    recipe = load(SOUND.replace("[texts/*.jsonl]", '["**/c.jsonl"]'))
    assert recipe.data.files == (str(folder / "texts/deep/c.jsonl"),)


def test_tilde_is_the_home_folder(load: Load, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder / "texts"))
    assert load(SOUND.replace("[texts/*.jsonl]", "[~/a.jsonl]")).data.files == (
        str(folder / "texts/a.jsonl"),
    )


def test_paths_are_relative_to_the_recipe_and_not_to_the_working_directory(
    load: Load, folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = load()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert load().data.files == here.data.files


def test_a_recipe_knows_its_file_and_keeps_it_out_of_what_it_says(
    load: Load, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load()
    monkeypatch.chdir(folder)
    recipe = load_recipe("r.yaml", (), {})
    assert (recipe.path, recipe.base) == (folder / "r.yaml", folder)
    assert str(folder / "r.yaml") not in recipe.model_dump_json()


def test_a_recipe_cannot_be_changed(load: Load) -> None:
    recipe = load()
    with pytest.raises(ValidationError, match="frozen"):
        recipe.name = "other"
    with pytest.raises(ValidationError, match="frozen"):
        recipe.data.seed = 1


def test_a_byte_order_mark_and_comments_are_no_content(load: Load) -> None:
    assert load("\ufeff# comment\n" + SOUND).name == "sound"


def test_an_alias_is_the_value_it_refers_to(load: Load) -> None:
    recipe = load(SOUND + "gate: {kl: {max_mean: &margin 0.2}, perplexity: {max_increase: *margin}}\n")
    assert recipe.gate.perplexity.max_increase == 0.2


@pytest.mark.parametrize(("text", "value"), [("1e-2", 0.01), ("1.0e-2", 0.01), (".01", 0.01), ("0", 0.0)])
def test_a_number_may_be_written_as_editors_and_json_write_it(load: Load, text: str, value: float) -> None:
    assert load(f"{SOUND}gate: {{kl: {{max_mean: {text}}}}}\n").gate.kl.max_mean == value


def test_a_date_is_a_name_like_any_other(load: Load) -> None:
    assert load(SOUND.replace("sound", "2026-11-30")).name == "2026-11-30"


def test_margins_default_by_bits(load: Load) -> None:
    recipe = load()
    assert margins(recipe, recipe.artifacts[0]) == Margins(max_increase=0.03, max_mean_kl=0.05)
    eight = recipe.artifacts[0].model_copy(update={"bits": 8})
    assert margins(recipe, eight) == Margins(max_increase=0.01, max_mean_kl=0.05)


def test_a_lossless_export_has_narrow_margins_that_a_recipe_may_only_narrow(load: Load) -> None:
    both = SOUND + "  - {name: fp16, format: hf, dtype: float16}\n"
    recipe = load(both)
    assert margins(recipe, recipe.artifacts[1]) == Margins(max_increase=0.001, max_mean_kl=0.0005)
    recipe = load(both + "gate: {perplexity: {max_increase: 0.15}, kl: {max_mean: 0.0001}}\n")
    assert margins(recipe, recipe.artifacts[0]) == Margins(max_increase=0.15, max_mean_kl=0.0001)
    assert margins(recipe, recipe.artifacts[1]) == Margins(max_increase=0.001, max_mean_kl=0.0001)


def test_margins_of_the_recipe_win_one_by_one(load: Load) -> None:
    recipe = load(SOUND + "gate: {perplexity: {max_increase: 0.5}}\n")
    assert margins(recipe, recipe.artifacts[0]) == Margins(max_increase=0.5, max_mean_kl=0.05)
    recipe = load(SOUND + "gate: {perplexity: {max_increase: 0}, kl: {max_mean: 0}}\n")
    assert margins(recipe, recipe.artifacts[0]) == Margins(max_increase=0.0, max_mean_kl=0.0)


def test_shares_given_as_rounded_thirds_sum_to_one(load: Load) -> None:
    recipe = load(
        SOUND.replace(
            "artifacts:", "  split: {calibration: .333, selection: .333, evaluation: .334}\nartifacts:"
        )
    )
    assert recipe.data.split.evaluation == 0.334


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_recipes_load_and_are_named_after_their_file(path: Path) -> None:
    recipe = load_recipe(path, (), {})
    assert recipe.name == path.stem
    assert path.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=schema.json\n")


def test_loading_a_recipe_imports_no_torch() -> None:
    code = (
        "import sys; from quantflow.recipe.load import load_recipe;"
        f"load_recipe({str(RECIPES / 'quickstart.yaml')!r}, [], {{}});"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
