"""What a task hears from our runtime is what lm-eval's own transformers model would say."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from quantflow.errors import SourceError, TaskError
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.resident import resident
from quantflow.model.tokenizer import load_tokenizer
from quantflow.model.weights import SafetensorsReader
from quantflow.tasks.adapter import RuntimeLM
from quantflow.tasks.batches import Batches
from quantflow.tasks.scoring import TorchText
from tests.reporting import RecordingReporter

PER_TOKEN = 1e-4
CONTEXTS = (
    "Dear customer, this is about order NL-100007.",
    "If the thermostat does not pair,",
    "",
    "Hello, this is about order NL-1. If the hub is silent, please change both batteries and wait. Then",
)
CONTINUATIONS = (" please hold the button", " send it back with the free label in the box.", " Good morning")


def ours(model: Path, reporter: RecordingReporter, batch_tokens: int = 96) -> RuntimeLM:
    return over(StreamedDecoder(model, SafetensorsReader(model)), reporter, batch_tokens)


def over(
    decoder: StreamedDecoder, reporter: RecordingReporter, batch_tokens: int = 96, *, stays: bool = False
) -> RuntimeLM:
    text_model = TorchText(decoder, batch_tokens, SourceError, stays=stays)
    work = Batches(reporter, "task", "running")
    return RuntimeLM(text_model, load_tokenizer(decoder.folder, SourceError), work)


@pytest.fixture(scope="module")
def theirs(tiny_llama: Path) -> HFLM:
    load: Any = AutoModelForCausalLM.from_pretrained
    model = load(tiny_llama, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(tiny_llama)
    return HFLM(pretrained=model, tokenizer=tokenizer, batch_size=2, device="cpu")


def requests(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, argument, number) for number, argument in enumerate(arguments)]


def test_log_likelihoods_of_continuations_are_lm_evals(
    tiny_llama: Path, theirs: HFLM, reporter: RecordingReporter
) -> None:
    asked = requests("loglikelihood", *((a, b) for a in CONTEXTS for b in CONTINUATIONS))
    for mine, other in zip(
        ours(tiny_llama, reporter).loglikelihood(asked),
        theirs.loglikelihood(asked, disable_tqdm=True),
        strict=True,
    ):
        assert mine[0] == pytest.approx(other[0], abs=PER_TOKEN)
        assert mine[1] == other[1]


def test_whole_texts_longer_than_the_context_are_scored_in_lm_evals_windows(
    tiny_llama: Path, theirs: HFLM, reporter: RecordingReporter
) -> None:
    text = " ".join(CONTEXTS) * 8
    asked = requests("loglikelihood_rolling", (text,), (CONTEXTS[0],))
    lm = ours(tiny_llama, reporter)
    tokens = len(lm.tok_encode(text))
    assert tokens > lm.max_length
    for mine, other in zip(
        lm.loglikelihood_rolling(asked), theirs.loglikelihood_rolling(asked, disable_tqdm=True), strict=True
    ):
        assert mine == pytest.approx(other, abs=PER_TOKEN * tokens)


def test_greedy_text_ends_where_lm_evals_does(
    tiny_llama: Path, theirs: HFLM, reporter: RecordingReporter
) -> None:
    settings = {"until": [" and", "."], "max_gen_toks": 24, "do_sample": False}
    asked = requests("generate_until", *((context, settings) for context in CONTEXTS if context))
    mine = ours(tiny_llama, reporter).generate_until(asked)
    assert mine == theirs.generate_until(asked, disable_tqdm=True)
    assert any(mine)
    assert not any("." in text for text in mine)


def test_answers_do_not_depend_on_whether_the_weights_stay_in_memory(
    tiny_llama: Path, reporter: RecordingReporter
) -> None:
    asked = requests("loglikelihood", *((a, CONTINUATIONS[1]) for a in CONTEXTS))
    streamed = ours(tiny_llama, reporter).loglikelihood(asked)
    decoder = StreamedDecoder(tiny_llama, SafetensorsReader(tiny_llama))
    with resident(decoder, float("inf")) as stays:
        assert stays
        assert over(decoder, RecordingReporter(), stays=True).loglikelihood(asked) == streamed


def test_a_task_that_wants_sampled_text_is_refused(tiny_llama: Path, reporter: RecordingReporter) -> None:
    asked = requests("generate_until", (CONTEXTS[0], {"do_sample": True, "temperature": 0.8}))
    with pytest.raises(TaskError, match="sampled"):
        ours(tiny_llama, reporter).generate_until(asked)


def test_prompts_that_lose_their_beginning_are_counted(tiny_llama: Path, reporter: RecordingReporter) -> None:
    lm = ours(tiny_llama, reporter)
    lm.loglikelihood(requests("loglikelihood", (CONTEXTS[0] * 40, " Good"), (CONTEXTS[0], " Good")))
    assert lm.truncated == 1


def test_finished_batches_are_not_run_again(
    tiny_llama: Path, reporter: RecordingReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests("loglikelihood", *((a, CONTINUATIONS[0]) for a in CONTEXTS))
    first = ours(tiny_llama, reporter).loglikelihood(asked)
    decoder = StreamedDecoder(tiny_llama, SafetensorsReader(tiny_llama))
    monkeypatch.setattr(decoder, "embed", None)
    assert over(decoder, reporter).loglikelihood(asked) == first


def test_a_kept_batch_that_was_cut_short_is_run_again(tiny_llama: Path, reporter: RecordingReporter) -> None:
    asked = requests("loglikelihood", *((a, CONTINUATIONS[0]) for a in CONTEXTS))
    first = ours(tiny_llama, reporter).loglikelihood(asked)
    kept = reporter.progress_folder / "task.jsonl"
    kept.write_text(kept.read_text()[:-9])
    assert ours(tiny_llama, reporter).loglikelihood(asked) == first
