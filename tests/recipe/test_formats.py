"""Artifacts of each format have keys of their own, and messages as good as everywhere else."""

import pytest

from quantflow.quantize.params import Scheme
from quantflow.recipe.artifacts import is_quantized_here
from quantflow.recipe.margins import margins
from quantflow.recipe.scheme import scheme_of
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
        (
            "{name: a, format: gguf}",
            "r.yaml:8",
            "format: `gguf` is not allowed",
            "Allowed: `awq`, `gptq`, `hf`, `import`, `onnx`.",
        ),
        (
            "{name: a, format: 5}",
            "r.yaml:8",
            "artifacts[0].format: `5` is not allowed",
            "`awq`, `gptq`, `hf`, `import`",
        ),
        (
            "{name: a, format: [hf]}",
            "r.yaml:8",
            "artifacts[0].format: a list is not allowed",
            "`awq`, `gptq`, `hf`, `import`",
        ),
        (
            "{name: a, format: }",
            "r.yaml:8",
            "artifacts[0].format: nothing is not allowed",
            "`awq`, `gptq`, `hf`, `import`",
        ),
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
            "It goes with format `awq`, `gptq`. Allowed here: `dtype`, `format`, `name`.",
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
        (
            "{name: a, format: awq, bits: 4, symmetric: true}",
            "r.yaml:8",
            "artifacts[0].symmetric: there is no such key",
            "It goes with format `gptq`.",
        ),
        ("{name: a, format: gptq, bits: 5}", "r.yaml:8", "bits: `5` is not allowed", "`2`, `3`, `4`, `8`"),
        ("{name: a, format: gptq, bits: 4, group_size: 0}", "r.yaml:8", "`0` is not allowed", "`-1`, `32`"),
        (
            "{name: a, format: gptq, bits: 4, damping: 0}",
            "r.yaml:8",
            "`0` is out of range: more than 0",
            "diagonal",
        ),
        (
            "{name: a, format: gptq, bits: 4, damping: 2}",
            "r.yaml:8",
            "`2` is out of range: at most 1",
            "diagonal",
        ),
        (
            "{name: a, format: gptq, bits: 4, method: awq}",
            "r.yaml:8",
            "`awq` is not allowed",
            "`gptq`, `rtn`",
        ),
        (
            "{name: a, format: gptq, bits: 4, method: rtn, damping: 0.1}",
            "r.yaml:8",
            "artifacts[0].damping: it does nothing with method rtn",
            "Remove it, or set method to gptq.",
        ),
        (
            "{name: a, format: gptq, bits: 4, keep: down}",
            "r.yaml:8",
            "keep: has to be a list",
            "[first, second]",
        ),
        ("{name: a, format: gptq, bits: 4, keep: ['']}", "r.yaml:8", "keep[0]: must not be empty", "Units"),
        ("a", "r.yaml:8", "artifacts[0]: has to be a mapping of keys, this is `a`", "`bits`, `block_size`"),
        (
            "[a]",
            "r.yaml:8",
            "artifacts[0]: has to be a mapping of keys, this is a list",
            "`bits`, `block_size`",
        ),
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


def schemes(load: Load, *artifacts: str) -> list[Scheme]:
    text = SOUND.replace(ARTIFACT, "".join(f"  - {{name: a{n}, {a}}}\n" for n, a in enumerate(artifacts)))
    quantized = [artifact for artifact in load(text).artifacts if is_quantized_here(artifact)]
    return [scheme_of(artifact) for artifact in quantized]


def test_an_artifact_s_keys_say_its_scheme(load: Load) -> None:
    awq, gptq = schemes(
        load,
        "format: awq, bits: 4, group_size: 64",
        "format: gptq, bits: 3, group_size: -1, symmetric: false, "
        "desc_act: true, static_groups: true, damping: 0.05",
    )
    assert awq == Scheme(method="awq", bits=4, group_size=64)
    assert gptq == Scheme(
        method="gptq",
        bits=3,
        group_size=-1,
        symmetric=False,
        desc_act=True,
        static_groups=True,
        damping=0.05,
        scale_search="mse",
    )


def test_artifacts_that_differ_in_what_their_codes_do_not_depend_on_have_one_scheme(load: Load) -> None:
    one, two = schemes(
        load, "format: gptq, bits: 4", "format: gptq, bits: 4, refine: false, keep: ['*.down']"
    )
    assert one == two
    assert one.symmetric


def test_schemes_that_differ_have_different_names(load: Load) -> None:
    base = {"format": "gptq", "bits": 4}
    others: list[dict[str, object]] = [
        {},
        {"bits": 3},
        {"group_size": -1},
        {"symmetric": "false"},
        {"desc_act": "true"},
        {"static_groups": "true"},
        {"damping": 0.02},
        {"damping": 0.02000001},
        {"scale_search": "minmax"},
        {"method": "rtn"},
    ]
    written = [", ".join(f"{key}: {value}" for key, value in (base | changes).items()) for changes in others]
    ids = [scheme.id for scheme in schemes(load, *written)]
    assert len(set(ids)) == len(ids)


def test_fewer_bits_than_four_get_no_wider_margin_by_themselves(load: Load) -> None:
    recipe = load(SOUND.replace(ARTIFACT, "  - {name: a, format: gptq, bits: 2}\n"))
    four = load(SOUND)
    assert margins(recipe, recipe.artifacts[0]) == margins(four, four.artifacts[0])
