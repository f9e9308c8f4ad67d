"""Artifacts of each format have keys of their own, and messages as good as everywhere else."""

import pytest

from tests.recipe.conftest import SOUND, Load, Refusal

ARTIFACT = "  - name: int4\n    format: awq\n    bits: 4\n"


def test_formats_can_stand_beside_each_other(load: Load) -> None:
    recipe = load(SOUND + "  - {name: fp16, format: hf, dtype: float16}\n")
    assert [artifact.format for artifact in recipe.artifacts] == ["awq", "hf"]


@pytest.mark.parametrize(
    ("artifact", "where", "message", "hint"),
    [
        ("{name: a}", "r.yaml:8", "artifacts[0].format: this key is missing", "hf (a plain Hugging Face"),
        ("{name: a, format: hf}", "r.yaml:8", "artifacts[0].dtype: this key is missing", "bfloat16"),
        ("{name: a, format: hff, dtype: float16}", "r.yaml:8", "format: `hff` is not allowed", "mean `hf`?"),
        ("{name: a, format: gguf}", "r.yaml:8", "format: `gguf` is not allowed", "Allowed: `awq`, `hf`."),
        ("{name: a, format: 5}", "r.yaml:8", "artifacts[0].format: `5` is not allowed", "`awq`, `hf`"),
        ("{name: a, format: [hf]}", "r.yaml:8", "artifacts[0].format: a list is not allowed", "`awq`, `hf`"),
        ("{name: a, format: }", "r.yaml:8", "artifacts[0].format: nothing is not allowed", "`awq`, `hf`"),
        (
            "{name: a, format: hf, dtype: fp16}",
            "r.yaml:8",
            "artifacts[0].dtype: `fp16` is not allowed",
            "Allowed: `float16`, `bfloat16`",
        ),
        (
            "{name: a, format: hf, dtype: float61}",
            "r.yaml:8",
            "artifacts[0].dtype: `float61` is not allowed",
            "Did you mean `float16`?",
        ),
        (
            "{name: a, format: hf, dtype: float16, bits: 4}",
            "r.yaml:8",
            "artifacts[0].bits: there is no such key",
            "It goes with format `awq`. Allowed here: `dtype`, `format`, `name`.",
        ),
        (
            "{name: a, format: awq, bits: 4, dtype: float16}",
            "r.yaml:8",
            "artifacts[0].dtype: there is no such key",
            "It goes with format `hf`. Allowed here: `bits`, `format`",
        ),
        (
            "{name: a, format: hf, dtype: float16, dtyp: x}",
            "r.yaml:8",
            "artifacts[0].dtyp: there is no such key",
            "Did you mean `dtype`?",
        ),
        ("a", "r.yaml:8", "artifacts[0]: has to be a mapping of keys, this is `a`", "`bits`, `dtype`"),
        ("[a]", "r.yaml:8", "artifacts[0]: has to be a mapping of keys, this is a list", "`bits`, `dtype`"),
    ],
)
def test_each_format_has_its_own_keys_and_messages(
    refusal: Refusal, artifact: str, where: str, message: str, hint: str
) -> None:
    error = refusal(SOUND.replace(ARTIFACT, f"  - {artifact}\n"))
    assert error.where == where
    assert message in error.message
    assert hint in error.hint


def test_a_truth_value_is_true_or_false(refusal: Refusal) -> None:
    error = refusal(SOUND.replace("org/model", "org/model\n  allow_pickle: 1"))
    assert error.message == "model.allow_pickle: has to be true or false, this is `1`"
