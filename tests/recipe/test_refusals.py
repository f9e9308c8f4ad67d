"""Every mistake in a recipe has its place, its key, its message and its remedy."""

from pathlib import Path

import pytest

from quantflow.errors import RecipeError
from quantflow.recipe.load import LARGEST_RECIPE, load_recipe
from tests.recipe.conftest import SOUND, Refusal

ARTIFACT = "  - name: int4\n    format: awq\n    bits: 4\n"


@pytest.mark.parametrize(
    ("instead_of", "written", "where", "message", "hint"),
    [
        ("name: sound", "nmae: sound\nname: sound", "r.yaml:2", "nmae: there is no such key", "`name`?"),
        ("bits: 4", "bits: 4\n    group-size: 64", "r.yaml:11", "artifacts[0].group-size", "`group_size`?"),
        (
            "bits: 4",
            "bits: 4\n    group: 64",
            "r.yaml:11",
            "artifacts[0].group",
            "Did you mean `group_size`?",
        ),
        ("version: 1", "version: 1\nwindows: 3", "r.yaml:2", "windows", "`data.calibration.windows`"),
        ("version: 1", "version: 1\nzzz: 3", "r.yaml:2", "zzz", "Allowed here: `artifacts`, `data`"),
        (
            "format: awq",
            "format: AWQ",
            "r.yaml:9",
            "artifacts[0].format: `AWQ` is not allowed",
            "mean `awq`?",
        ),
        ("bits: 4", "bits: 8", "r.yaml:10", "artifacts[0].bits: `8` is not allowed", "Allowed: `4`."),
        ("bits: 4", "bits: 4\n    group_size: 100", "r.yaml:11", "`100` is not allowed", "`32`, `64`, `128`"),
        ("version: 1", "version: 2", "r.yaml:1", "version: `2` is not allowed", "Allowed: `1`."),
        ("version: 1\n", "", "r.yaml:1", "version: this key is missing", "Version of the recipe format"),
        ("    bits: 4\n", "", "r.yaml:8", "artifacts[0].bits: this key is missing", "Bits per weight"),
        ("  source: org/model", "  {}", "r.yaml:3", "model.source: this key is missing", "hub id"),
        ("name: sound", "name: 5", "r.yaml:2", "name: has to be text, this is `5`", "Put it in quotes."),
        ("name: sound", "name: no", "r.yaml:2", "name: `no` is false to some YAML readers", '"no" in quotes'),
        ("name: sound", "name: ../up", "r.yaml:2", "name: `../up` cannot be the name of a folder", "a-z"),
        ("name: sound", "name: .hidden", "r.yaml:2", "name: `.hidden`", "begin with a letter or digit"),
        ("name: sound", "name: Upper", "r.yaml:2", "name: `Upper`", "a-z"),
        ("name: sound", f"name: {'a' * 65}", "r.yaml:2", "name: longer than 64 characters", ""),
        ("name: sound", "name:", "r.yaml:2", "name: has to be text, this is nothing", "Name of the recipe"),
        (
            "model:\n  source: org/model",
            "model: org/model",
            "r.yaml:3",
            "model: has to be a mapping",
            "`source`",
        ),
        ("org/model", "''", "r.yaml:4", "model.source: must not be empty", "hub id"),
        ("org/model", "./gone", "r.yaml:4", "model.source: there is no such model folder", "org/name"),
        ("org/model", "wheel://a==1/m.gguf", "r.yaml:4", "needs the wheel's SHA-256", "#sha256=<64 hex"),
        (
            "org/model",
            "wheel://a==1/m.gguf#sha256=ab",
            "r.yaml:4",
            "this wheel source is malformed",
            "64 hex",
        ),
        (
            "org/model",
            "texts\n  revision: main",
            "r.yaml:5",
            "model.revision: a revision is for models of a hub",
            "",
        ),
        ("[texts/*.jsonl]", "texts/a.jsonl", "r.yaml:6", "data.files: has to be a list", "[first, second]"),
        ("[texts/*.jsonl]", "[]", "r.yaml:6", "data.files: must not be empty", ".jsonl"),
        (
            "[texts/*.jsonl]",
            "[texts/*.json]",
            "r.yaml:6",
            "data.files[0]: no file matches",
            "Looked for texts/*.json",
        ),
        ("[texts/*.jsonl]", "[texts]", "r.yaml:6", "data.files[0]: this is a folder", "texts/*.jsonl"),
        ("[texts/*.jsonl]", "[~nobody-here/a]", "r.yaml:6", "data.files[0]: the home folder", "whole path"),
        (
            "artifacts:\n" + ARTIFACT,
            "artifacts: []\n",
            "r.yaml:7",
            "artifacts: must not be empty",
            "one or more",
        ),
        (
            "artifacts:\n" + ARTIFACT,
            "artifacts: {name: a}\n",
            "r.yaml:7",
            "has to be a list, this is a mapping",
            "",
        ),
        (
            ARTIFACT,
            ARTIFACT * 2,
            "r.yaml:11",
            "artifacts[1].name: the name is that of artifacts[0]",
            "its own name",
        ),
    ],
)
def test_a_mistake_is_named_with_line_key_and_remedy(
    refusal: Refusal, instead_of: str, written: str, where: str, message: str, hint: str
) -> None:
    assert instead_of in SOUND
    error = refusal(SOUND.replace(instead_of, written))
    assert error.where == where
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        ("calibration: {windows: 0}", "data.calibration.windows: `0` is out of range: at least 1", "512"),
        ("calibration: {windows: 1.5}", "has to be a whole number, this is `1.5`", "Number of calibration"),
        ("calibration: {windows: 1_000}", "has to be a whole number, this is `1_000`", "Write 1000"),
        ("calibration: {windows: '64'}", "has to be a whole number, this is `64`", "without quotes"),
        (
            "calibration: {windows: 010}",
            "data.calibration.windows: `010` is an octal number",
            "leading zeros",
        ),
        (
            "calibration: {windows: 99999999999999999999999}",
            "data.calibration.windows: has to be a whole",
            "",
        ),
        ("calibration: {length: 7}", "data.calibration.length: `7` is out of range: at least 8", "tokens"),
        ("evaluation: {length: 131073}", "`131073` is out of range: at most 131072", "tokens"),
        ("evaluation:", "data.evaluation: has to be a mapping", "Remove the key to use its defaults."),
        ("seed: -1", "data.seed: `-1` is out of range: at least 0", "Seed"),
        ("seed: 4294967296", "data.seed: `4294967296` is out of range: less than 4294967296", "Seed"),
        ("seed: true", "data.seed: has to be a whole number, this is `true`", "Seed"),
        (
            "split: {calibration: 0.6}",
            "data.split: the three shares have to sum to 1, these sum to 1.1",
            "sum to 1",
        ),
        ("split: {calibration: 0}", "data.split.calibration: `0` is out of range: more than 0", "Share"),
        ("split: {calibration: .nan}", "data.split.calibration: has to be a number, this is `.nan`", "Share"),
        ("split: {calibration: 1e999}", "has to be a finite number, this is `1e999`", "Share"),
    ],
)
def test_a_value_of_the_data_section_is_held_to_its_type_and_bounds(
    refusal: Refusal, data: str, message: str, hint: str
) -> None:
    error = refusal(SOUND.replace("artifacts:", f"  {data}\nartifacts:"))
    assert error.where == "r.yaml:7"
    assert message in error.message
    assert hint in error.hint


def test_a_nearest_spelling_is_offered_only_where_there_is_one(refusal: Refusal) -> None:
    assert "Did you mean `torch`?" in refusal(SOUND + "runtime: {name: torhc}\n").hint
    # A user who writes gpu wants cuda, which the description says; cpu is near in letters alone.
    error = refusal(SOUND + "runtime: {device: gpu}\n")
    assert "Did you mean" not in error.hint
    assert "cuda (an NVIDIA GPU)" in error.hint


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(refusal: Refusal) -> None:
    text = SOUND.replace("name: sound", "name: yes\nname: b").replace(
        "texts/*.jsonl", "gone.jsonl, '${GONE}'"
    )
    text = (
        text.replace("org/model", "wheel://x").replace("awq", "gguf")
        + ARTIFACT
        + "gate: {kl: {max_maen: 1}}\n"
    )
    error = refusal(text, "data.sede=1")
    assert error.where == "r.yaml"
    first, *lines = [line for line in error.message.splitlines() if not line.startswith("  ")]
    assert first == "9 mistakes"
    assert [": ".join(line.split(": ")[:2]) for line in lines] == [
        "r.yaml:2: name",
        "r.yaml:3: name",
        "r.yaml:5: model.source",
        "r.yaml:7: data.files[1]",
        "r.yaml:7: data.files[0]",
        "r.yaml:10: artifacts[0].format",
        "r.yaml:12: artifacts[1].name",
        "r.yaml:15: gate.kl.max_maen",
        "--set data.sede=1: data.sede",
    ]


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("", "r.yaml", "the recipe is empty"),
        ("# nothing but a comment\n---\n", "r.yaml", "the recipe is empty"),
        ("- a\n- b\n", "r.yaml:1", "a recipe is a mapping of keys"),
        ("just text\n", "r.yaml:1", "a recipe is a mapping of keys"),
        ("a: 1\n\tb: 2\n", "r.yaml:2", "a tab where YAML wants spaces"),
        ("a: 1\n---\nb: 2\n", "r.yaml:2", "a second one begins here"),
        ("a: [1\nb: 2\n", "r.yaml:2", "this is not valid YAML"),
        ("a: b: c\n", "r.yaml:1", "mapping values are not allowed here"),
        ("a: \x01\n", "r.yaml:1", "character #x0001 is not allowed in YAML"),
        ("files: [*.jsonl]\n", "r.yaml:1", "this is not valid YAML"),
        ("files: *all\n", "r.yaml:1", "`*all` refers to nothing before it"),
        ("a: &a [*a]\n", "r.yaml:1", "`*a` refers to nothing before it"),
        ("? [a]\n: 1\n", "r.yaml:1", "a key has to be a plain word"),
        ("a: " + "[" * 5000 + "]" * 5000, "r.yaml:1", "nested more than 20 levels deep"),
    ],
)
def test_what_is_no_recipe_at_all_says_why(refusal: Refusal, text: str, where: str, message: str) -> None:
    error = refusal(text)
    assert (error.where, message in error.message) == (where, True), error


def test_quotes_are_advised_where_yaml_takes_a_glob_or_a_variable_for_its_own(refusal: Refusal) -> None:
    assert "has to be quoted" in refusal("files: [*.jsonl]\n").hint
    assert "has to be quoted" in refusal("files: [${HOME}/a.jsonl]\n").hint


def test_aliases_that_blow_up_are_refused_at_once(refusal: Refusal) -> None:
    levels = [f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9)}]" for i in range(1, 12)]
    error = refusal("\n".join(["k0: &k0 [x, x, x, x, x, x, x, x, x]", *levels]))
    assert "more than 10000 values, aliases written out" in error.message


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!str", "!local", "!"])
def test_tags_are_refused_and_never_acted_on(refusal: Refusal, tag: str) -> None:
    error = refusal(SOUND.replace("name: sound", f"name: {tag} sound"))
    assert error.where == "r.yaml:2"
    assert "are not allowed: a recipe is data only" in error.message


def test_a_repeated_key_is_refused_and_both_lines_are_named(refusal: Refusal) -> None:
    error = refusal(SOUND.replace("    bits: 4", "    bits: 4\n    format: awq"))
    assert error.where == "r.yaml:11"
    assert error.message == "artifacts[0].format: the key is already there on line 9"


def test_merge_keys_are_refused(refusal: Refusal) -> None:
    error = refusal(SOUND.replace("    bits: 4", "    bits: 4\n    <<: {group_size: 64}"))
    assert (error.where, error.message) == ("r.yaml:11", "artifacts[0]: merge keys (<<) are not supported")


def test_a_file_that_is_not_utf8_names_the_line(folder: Path) -> None:
    (folder / "r.yaml").write_bytes(b"version: 1\nname: caf\xe9\n")
    with pytest.raises(RecipeError, match="not UTF-8") as raised:
        load_recipe(folder / "r.yaml")
    assert raised.value.where == f"{folder}/r.yaml:2"


def test_a_missing_file_names_the_recipes_beside_it(folder: Path) -> None:
    (folder / "other.yaml").write_text(SOUND)
    with pytest.raises(RecipeError, match="no such recipe") as raised:
        load_recipe(folder / "gone.yaml")
    assert raised.value.hint == "Recipes in that folder: other.yaml."


def test_a_folder_or_a_large_file_is_not_read_as_a_recipe(folder: Path) -> None:
    with pytest.raises(RecipeError, match="this is a folder"):
        load_recipe(folder)
    (folder / "model.safetensors").write_bytes(b"\0" * (LARGEST_RECIPE + 1))
    with pytest.raises(RecipeError, match="this is not a recipe"):
        load_recipe(folder / "model.safetensors")


def test_a_long_value_is_shortened_in_the_message(refusal: Refusal) -> None:
    error = refusal(SOUND.replace("format: awq", f"format: {'x' * 500}"))
    assert f"`{'x' * 80}…` is not allowed" in error.message
