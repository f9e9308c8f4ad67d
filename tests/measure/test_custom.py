"""A scorer of the user's own gets both sides' texts and answers with two numbers each."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from quantflow.errors import TaskError
from quantflow.gate.asked import CustomMargin
from quantflow.gate.custom import custom_criterion
from quantflow.gate.verdict import Verdict
from quantflow.measure.custom import CustomScores, ask
from quantflow.measure.params import CustomScore

PAIRS = [
    {"prompt": "Hello", "baseline": "good day", "artifact": "go", "slice": "chat", "document": n}
    for n in range(3)
]
LENGTHS = """
def score(samples):
    print('noise on standard output')
    return [(len(s['baseline']), len(s['artifact'])) for s in samples]
"""


def function(tmp_path: Path, code: str) -> CustomScore:
    path = tmp_path / "scorer.py"
    path.write_text(code)
    return CustomScore(name="tone", function="score", command=None, files={"scorer.py": str(path)})


def command(code: str) -> CustomScore:
    return CustomScore(name="tone", function=None, command=(sys.executable, "-c", code), files={})


def test_a_function_scores_both_sides_and_may_print(tmp_path: Path) -> None:
    assert ask(function(tmp_path, LENGTHS), PAIRS) == [(8.0, 2.0)] * 3


def test_a_command_reads_and_writes_a_json_object_a_line() -> None:
    code = (
        "import sys, json\n"
        "for line in sys.stdin:\n"
        "    said = json.loads(line)['artifact']\n"
        "    print(json.dumps({'baseline': 1, 'artifact': len(said)}))"
    )
    assert ask(command(code), PAIRS) == [(1.0, 2.0)] * 3


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("raise SystemExit(3)", "ended with 3"),
        ("print('{}')", "1 scores for 3 prompts"),
        ("print('[1]\\n[1]\\n[1]')", "score 1 is no object with numbers"),
        ('print(\'{"baseline": NaN, "artifact": 1}\\n\' * 3)', "score 1 is not finite"),
    ],
)
def test_an_answer_that_is_none_is_an_error(code: str, complaint: str) -> None:
    with pytest.raises(TaskError, match=complaint):
        ask(command(code), PAIRS)


def test_a_function_that_fails_is_told_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="ended with 1") as caught:
        ask(function(tmp_path, "def score(samples):\n    raise ValueError('no model for tone')\n"), PAIRS)
    assert "no model for tone" in caught.value.hint


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TaskError, match="cannot be run"):
        ask(CustomScore(name="tone", function=None, command=("no-such-program",), files={}), PAIRS)


def judged(drop: float, *, max_drop: float = 0.2, clusters: Sequence[int] | None = None) -> Verdict:
    count = 60
    before = tuple(3.0 + 0.01 * (n % 7) for n in range(count))
    scores = CustomScores(
        name="tone", documents=tuple(range(count)), baseline=before, artifact=tuple(b - drop for b in before)
    )
    margin = CustomMargin(name="tone", max_drop=max_drop, higher_is_better=True, required=True)
    return custom_criterion("int4", margin, scores, clusters or range(count)).verdict


def test_scores_are_judged_like_any_paired_metric() -> None:
    assert judged(0.1) is Verdict.PASS
    assert judged(0.5) is Verdict.FAIL


def test_answers_about_copies_of_one_letter_are_one_piece_of_evidence() -> None:
    assert judged(0.1, clusters=[n % 20 for n in range(60)]) is Verdict.INCONCLUSIVE


def test_a_scorer_that_was_not_asked_is_an_error() -> None:
    margin = CustomMargin(name="tone", max_drop=0.2, higher_is_better=True, required=True)
    assert custom_criterion("int4", margin, None, ()).verdict is Verdict.ERROR
