"""`${NAME}` in texts of a recipe."""

import pytest

from tests.recipe.conftest import SOUND, Load, Refusal


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("a ${X} b", "a x b"),
        ("${X}${X}", "xx"),
        ("${GONE:-else}", "else"),
        ("${X:-else}", "x"),
        ("${EMPTY:-else}", "else"),
        ("${GONE:-}.", "."),
        ("$${X}", "${X}"),
        ("${NESTED}", "${X}"),
        ("$X {X} $", "$X {X} $"),
    ],
)
def test_variables_are_filled_in_once(load: Load, written: str, title: str) -> None:
    recipe = load(SOUND + f"report:\n  title: {written}\n", X="x", EMPTY="", NESTED="${X}")
    assert recipe.report.title == title


def test_a_variable_without_quotes_may_be_a_number_and_in_quotes_is_text(
    load: Load, refusal: Refusal
) -> None:
    assert load(SOUND.replace("artifacts", "  seed: ${SEED}\nartifacts"), SEED="7").data.seed == 7
    assert (
        "has to be a whole number"
        in refusal(SOUND.replace("artifacts", '  seed: "${SEED}"\nartifacts'), SEED="7").message
    )


def test_an_unset_variable_is_an_error_with_its_line(refusal: Refusal) -> None:
    error = refusal(SOUND.replace("org/model", "${MODEL}"))
    assert (error.where, error.message) == (
        "r.yaml:4",
        "model.source: the environment variable MODEL is not set",
    )
    assert "${MODEL:-default}" in error.hint


@pytest.mark.parametrize("written", ["${1X}", "${X", "${X-y}", "${}"])
def test_a_malformed_variable_is_refused(refusal: Refusal, written: str) -> None:
    error = refusal(SOUND.replace("org/model", f"'{written}'"), X="x")
    assert "holds a ${ that is no variable" in error.message


def test_what_a_variable_holds_is_not_shown_in_a_message(refusal: Refusal) -> None:
    error = refusal(SOUND.replace("format: awq", "format: ${TOKEN}"), TOKEN="s3cret")
    assert "s3cret" not in str(error)
    assert "${TOKEN}" in error.message


def test_a_variable_that_is_no_utf8_or_holds_control_characters_is_refused(refusal: Refusal) -> None:
    error = refusal(SOUND.replace("org/model", "${MODEL}"), MODEL="a\udcff")
    assert "model.source: the text holds the character U+DCFF" in error.message
    assert "U+0000" in refusal(SOUND.replace("org/model", '"a\\0"')).message


def test_keys_are_not_filled_in(refusal: Refusal) -> None:
    assert "${X}: there is no such key" in refusal(SOUND + "${X}: 1\n", X="report").message


def test_a_resolved_recipe_has_every_default_and_no_value_of_a_variable(load: Load) -> None:
    written = SOUND.replace("artifacts", "  seed: ${SEED}\nartifacts") + "report:\n  title: by ${WHO}\n"
    resolved = load(written, SEED="7", WHO="a secret").resolved()
    assert isinstance(resolved["report"], dict) and isinstance(resolved["data"], dict)
    assert resolved["report"]["title"] == "by ${WHO}" and resolved["report"]["language"] == "en"
    assert resolved["data"]["seed"] == "${SEED}"
    assert "files" not in resolved["data"]
