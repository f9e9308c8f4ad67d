"""A checkpoint folder that is all tokenizer: word level, so that a test can count tokens by eye."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from quantflow.data.encode import Encoder
from quantflow.source.checkpoint import Checkpoint, save_checkpoint

BOS, EOS, UNKNOWN, USER, ASSISTANT = 0, 1, 2, 3, 4
WORDS = 100
FIRST_WORD = 5
"""`w0` is token 5, `w1` token 6 and so on."""

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role == 'tool' %}{{ raise_exception('tools are not for us') }}{% endif %}"
    "<{{ message.role }}> {{ message.content }} {{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
DATED_TEMPLATE = "{{ bos_token }}{{ strftime_now('w%d') }} {{ messages[0].content }}"


def words(*numbers: int) -> str:
    """A text of one token per number."""
    return " ".join(f"w{number}" for number in numbers)


def write_source(
    output: Path, chat_template: str | None = CHAT_TEMPLATE, vocab_size: int = 105, *, bos: bool = True
) -> Path:
    """The finished output of a source stage whose checkpoint has this tokenizer."""
    special = {"<s>": BOS, "</s>": EOS, "<unk>": UNKNOWN, "<user>": USER, "<assistant>": ASSISTANT}
    vocabulary = special | {f"w{i}": FIRST_WORD + i for i in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", BOS)]
        )
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token="<s>" if bos else None,
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=["<user>", "<assistant>"],
    )
    fast.chat_template = chat_template
    folder = output / "checkpoint"
    fast.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": vocab_size}))
    save_checkpoint(
        output,
        Checkpoint(
            folder=folder,
            identity="0" * 64,
            kind="folder",
            uri="tiny",
            dtype="float32",
            model_type="llama",
            parameters=0,
            bytes=0,
            files={},
        ),
    )
    return output


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_source(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="session")
def encoder(source: Path) -> Encoder:
    return Encoder(source / "checkpoint")
