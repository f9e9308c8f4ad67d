"""`--set key=value` changes one value, and is held to the same rules as the file."""

import pytest

from tests.recipe.conftest import SOUND, Load, Refusal


def test_an_override_wins_over_the_file_and_a_later_one_over_an_earlier_one(load: Load) -> None:
    recipe = load(SOUND, "name=first", "name=second")
    assert recipe.name == "second"


def test_an_override_may_set_what_the_file_leaves_out(load: Load) -> None:
    recipe = load(SOUND, "data.calibration.windows=8", "gate.perplexity.max_increase=1e-1")
    assert recipe.data.calibration.windows == 8
    assert recipe.data.calibration.length == 2048
    assert recipe.gate.perplexity.max_increase == 0.1


@pytest.mark.parametrize("key", ["artifacts[0].group_size", "artifacts.0.group_size"])
def test_entries_of_a_list_are_named_with_brackets_or_dots(load: Load, key: str) -> None:
    assert load(SOUND, f"{key}=32").artifacts[0].model_dump()["group_size"] == 32


@pytest.mark.parametrize(
    ("value", "title"),
    [("*a: b #c", "*a: b #c"), ('"5"', "5"), ("'true'", "true"), ("a=b", "a=b"), (" a ", "a")],
)
def test_a_text_needs_no_quotes_unless_it_looks_like_something_else(
    load: Load, value: str, title: str
) -> None:
    assert load(SOUND, f"report.title={value}").report.title == title


def test_null_takes_a_value_back_to_its_default(load: Load) -> None:
    assert load(SOUND + "report: {title: T}\n", "report.title=null").report.title is None


def test_a_list_may_be_set_as_a_whole_or_by_entry(load: Load) -> None:
    assert len(load(SOUND, "data.files=[texts/a.jsonl]").data.files) == 1
    assert len(load(SOUND, "data.files[0]=texts/b.jsonl").data.files) == 1


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        ("data.calibration.window=8", "data.calibration.window: there is no such key", "mean `windows`?"),
        ("data.sede=1", "data.sede: there is no such key", "Did you mean `seed`?"),
        ("artifacts[0].bits=x", "artifacts[0].bits: `x` is not allowed", "Allowed: `4`."),
        ("artifacts[2].bits=4", "artifacts[2]: artifacts has no entry 2", "It has artifacts[0] only."),
        ("artifacts.first.bits=4", "artifacts.first: artifacts has no entry first", "artifacts[0] only"),
        ("name.first=a", "name.first: name is not a mapping", ""),
        ("data[0]=a", "data[0]: data is not a list", ""),
        ("gate[0]=a", "gate[0]: gate is not a list", ""),
        ("data.seed=1.5", "data.seed: has to be a whole number, this is `1.5`", "Seed"),
        ("data.seed=", "data.seed: has to be a whole number, this is nothing", "Seed"),
        ("data.files=a.jsonl", "data.files: has to be a list, this is `a.jsonl`", "[first, second]"),
        ("data.files=[a", "data.files: this is not valid YAML", ""),
        ("name=${GONE}", "name: the environment variable GONE is not set", "${GONE:-default}"),
        ("data.seed", "this is not an override", "--set key=value"),
        ("=1", "this is not an override", "--set key=value"),
        ("data..seed=1", "this is not an override", "--set key=value"),
        ("a." * 500 + "b=1", "this is not an override", "--set key=value"),
    ],
)
def test_a_wrong_override_is_refused_where_it_was_given(
    refusal: Refusal, override: str, message: str, hint: str
) -> None:
    error = refusal(SOUND, override)
    assert error.where == f"--set {override}"
    assert message in error.message
    assert hint in error.hint


def test_an_override_can_mend_what_the_environment_lacks(load: Load) -> None:
    assert load(SOUND.replace("name: sound", "name: ${GONE}"), "name=here").name == "here"
