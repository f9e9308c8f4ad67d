"""lm-eval's model interface over QuantFlow's runtimes: a task hears what the artifact computes."""

import json
from collections.abc import Sequence
from typing import Any

from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import (
    handle_stop_sequences,
    has_bos_prefix,
    normalize_gen_kwargs,
    postprocess_generated_text,
    resolve_max_length,
)

from quantflow.errors import TaskError
from quantflow.tasks.batches import Batches, TextModel

# lm-eval's own for models that do not say how long their context is, and for tasks that do not say how much
# to generate.
DEFAULT_CONTEXT, DEFAULT_GENERATED = 2048, 256
# Generation arguments that mean nothing to greedy decoding, or are looked at here.
GREEDY_ARGUMENTS = frozenset({"do_sample", "temperature", "top_p", "top_k", "until", "max_gen_toks"})


class RuntimeLM(TemplateLM):  # type: ignore[misc]
    """A model as lm-eval asks it, with lm-eval's rules of encoding, truncating and stopping.

    Args:
        text_model: The model.
        tokenizer: Its tokenizer.
        work: Where finished batches are kept and progress is shown.

    Attributes:
        truncated: How many prompts lost their beginning because the model's context is too short.
    """

    def __init__(self, text_model: TextModel, tokenizer: Any, work: Batches) -> None:
        """Nothing is loaded here."""
        super().__init__()
        self.text_model = text_model
        self.tokenizer = tokenizer
        self.work = work
        self.truncated = 0

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text that has no context: BOS, else EOS."""
        bos = self.tokenizer.bos_token_id
        return self.eot_token_id if bos is None else int(bos)

    @property
    def max_length(self) -> int:
        """Tokens of the model's context."""
        return int(resolve_max_length(self.text_model.config, self.tokenizer, default=DEFAULT_CONTEXT))

    @property
    def tokenizer_name(self) -> str:
        """What lm-eval would key cached prompts by; they are not cached."""
        return str(self.text_model.folder)

    def tok_encode(
        self,
        string: str,
        add_special_tokens: bool | None = None,
        **kwargs: Any,
    ) -> list[int]:
        """Token ids of a text, with what the tokenizer puts around it unless that is there already."""
        special = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        if add_special_tokens is None and has_bos_prefix(string, self.tokenizer.decode(self.prefix_token_id)):
            special["add_special_tokens"] = False
        ids: list[int] = self.tokenizer.encode(string, **special)
        return ids

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Messages in the model's own chat template."""
        return str(
            self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Log-likelihood of continuations, and whether they are what greedy decoding would give."""
        scores: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=disable_tqdm)
        return scores

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood of whole texts, in windows that together predict each token once."""
        windows: list[tuple[None, list[int], list[int]]] = []
        counts = []
        for request in requests:
            cut = utils.get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            own = [utils.make_disjoint_window(window) for window in cut]
            windows.extend((None, context, continuation) for context, continuation in own)
            counts.append(len(own))
        scores = [logprob for logprob, _ in self._loglikelihood_tokens(windows)]
        sums: list[float] = []
        at = 0
        for count in counts:
            sums.append(sum(scores[at : at + count]))
            at += count
        return sums

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Greedy text after each context, cut where a stop sequence begins."""
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(number)
        texts: dict[int, str] = {}
        for numbers in groups.values():
            found = self._generated([requests[n].args[0] for n in numbers], requests[numbers[0]].args[1])
            texts.update(zip(numbers, found, strict=True))
        return [texts[number] for number in range(len(requests))]

    def _generated(self, contexts: Sequence[str], arguments: dict[str, Any]) -> list[str]:
        settings = normalize_gen_kwargs(arguments, DEFAULT_GENERATED)
        if settings["do_sample"]:
            raise TaskError(
                "it asks for sampled text, which differs from run to run; both sides are run greedily here",
                hint="Take a task with do_sample: false, or set that in a copy of it in gate.tasks_dir.",
            )
        unknown = sorted(set(settings) - GREEDY_ARGUMENTS)
        if unknown:
            raise TaskError(
                f"it asks for arguments that greedy decoding here does not know: {', '.join(unknown)}"
            )
        stops = handle_stop_sequences(list(settings["until"]), eos=self.tokenizer.decode(self.eot_token_id))
        most = int(settings["max_gen_toks"])
        if most >= self.max_length:
            raise TaskError(f"it generates up to {most} tokens, the model's context has {self.max_length}")
        room = self.max_length - most
        encoded = [self.tok_encode(text) for text in contexts]
        self.truncated += sum(len(ids) > room for ids in encoded)
        prompts = [ids[-room:] for ids in encoded]
        window = max((len(self.tokenizer.encode(s, add_special_tokens=False)) for s in stops if s), default=1)

        def is_done(tokens: Sequence[int]) -> bool:
            # A stop sequence may be tokenized otherwise within a text, in a token more than by itself at most
            # for each character of it that a neighbour takes along.
            tail = self.tokenizer.decode(tokens[-2 * window - 2 :])
            return tokens[-1] == self.eot_token_id or any(stop in tail for stop in stops if stop)

        continuations = self.text_model.go_on(prompts, most, is_done, self.work)
        return [
            postprocess_generated_text(self.tokenizer.decode(c.tokens, skip_special_tokens=True), stops, None)
            for c in continuations
        ]

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Scores of continuations; a pair that is too long loses its beginning, as in lm-eval."""
        pairs = []
        for _, context, continuation in requests:
            if not continuation or len(continuation) > self.max_length:
                raise TaskError(
                    f"an answer of {len(continuation)} tokens cannot be scored: the model's context has "
                    f"{self.max_length}"
                )
            whole = (context + continuation)[-(self.max_length + 1) :]
            self.truncated += len(whole) < len(context) + len(continuation)
            at = len(whole) - len(continuation)
            pairs.append((whole[:at], whole[at:]))
        return [(s.logprob, s.is_greedy) for s in self.text_model.score(pairs, self.work)]
