"""Tiny models of our own making: a tokenizer and a small Llama, trained for seconds on text written here."""

import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 400
END_OF_TEXT, TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

OPENINGS = ("Good morning", "Hello", "Thank you for writing", "Dear customer", "I am sorry to hear that")
THINGS = ("thermostat", "radiator valve", "leak sensor", "air purifier", "hub", "shut-off valve")
TROUBLES = (
    "does not pair",
    "loses its connection",
    "shows an amber light",
    "needs new batteries",
    "is silent",
)
REMEDIES = (
    "hold the button for six seconds until the light pulses blue",
    "change both batteries and wait for three minutes",
    "move it closer to the hub and try again",
    "open the app, choose the room and tap on repair",
    "send it back with the free label in the box",
)
CLOSINGS = ("The refund takes five working days.", "Write to us again at any time.", "We are glad to help.")


def documents(count: int, seed: int = 0) -> list[str]:
    """Short letters of a customer service, no two of one call alike in order of their sentences."""
    choose = random.Random(seed)
    letters = []
    for number in range(count):
        sentences = [f"{choose.choice(OPENINGS)}, this is about order NL-{100000 + number}."]
        for _ in range(choose.randint(2, 5)):
            thing = choose.choice(THINGS)
            sentences.append(f"If the {thing} {choose.choice(TROUBLES)}, please {choose.choice(REMEDIES)}.")
        sentences.append(choose.choice(CLOSINGS))
        letters.append(" ".join(sentences))
    return letters


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with a chat template: every text can be encoded and comes back."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT, TURN, END_OF_TURN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents(100), trainer)
    wrap: Any = PreTrainedTokenizerFast
    wrapped: PreTrainedTokenizerFast = wrap(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    return wrapped


# What configs of these types need beside sizes, or have too large by default.
OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 16},
    "gemma2": {"head_dim": 16, "query_pre_attn_scalar": 16},
    "gemma3_text": {"head_dim": 16, "query_pre_attn_scalar": 16},
}


def tiny_config(kind: str = "llama", **changes: Any) -> Any:
    """A configuration of a `model_type` with grouped-query attention, 64 wide, 3 blocks."""
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "bos_token_id": None,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    make: Any = AutoConfig.for_model
    return make(kind, **(settings | OWN_SETTINGS.get(kind, {}) | changes))


def random_model(
    folder: Path, config: Any, *, dtype: torch.dtype = torch.float32, seed: int = 0, **saving: Any
) -> Path:
    """Save a model with random weights, norms and biases included, large enough that every one shows."""
    generator = torch.Generator().manual_seed(seed)
    build: Any = AutoModelForCausalLM.from_config
    model = build(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(mean=1.0 if "norm" in name else 0.0, std=0.2, generator=generator)
    model.to(dtype).save_pretrained(folder, **saving)
    return folder


def trained_llama(folder: Path, *, dtype: torch.dtype = torch.bfloat16, steps: int = 150) -> Path:
    """Save a Llama with tied embeddings that has learnt what `documents` look like, and its tokenizer.

    Equal calls give equal bytes: seeds are fixed and one thread computes.
    """
    tokenizer = tiny_tokenizer()
    stream = [token for text in documents(200) for token in tokenizer(f"{text}{END_OF_TURN}")["input_ids"]]
    length = 64
    windows = torch.tensor(stream[: len(stream) // length * length]).view(-1, length)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            build: Any = AutoModelForCausalLM.from_config
            model = build(tiny_config(tie_word_embeddings=True), dtype=torch.float32).train()
            optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
            for step in range(steps):
                batch = windows[torch.randint(len(windows), (8,))]
                loss = model(input_ids=batch, labels=batch, use_cache=False).loss
                loss.backward()
                for group in optimizer.param_groups:
                    group["lr"] = 4e-3 * (1 - step / steps)
                optimizer.step()
                optimizer.zero_grad()
    finally:
        torch.set_num_threads(threads)
    model.eval().to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
