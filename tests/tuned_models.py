"""Small models of transformers in folders, and corpora, for tests of fine-tuning."""

from pathlib import Path
from typing import Any

import torch
import transformers

from surefoot.data.shards import ShardWriter, write_manifest
from surefoot.records.manifest import HELD_OUT, TRAIN, Manifest

VOCABULARY = 64
TEXT = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def llama(folder: Path, **more: Any) -> Path:
    """A decoder of two blocks with random weights, as transformers writes it."""
    sizes = {"intermediate_size": 64, "num_key_value_heads": 1, "max_position_embeddings": 64}
    config = transformers.LlamaConfig(**{**TEXT, **sizes, "bos_token_id": 0, "eos_token_id": 0, **more})
    return saved(transformers.LlamaForCausalLM(config), folder)


def bert(folder: Path, head: str = "BertForMaskedLM") -> Path:
    """An encoder of two blocks."""
    config = transformers.BertConfig(**TEXT, intermediate_size=64, max_position_embeddings=64, num_labels=3)
    return saved(getattr(transformers, head)(config), folder)


def saved(model: Any, folder: Path) -> Path:
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder


def corpus(folder: Path, tokens: int = 4000, held_out: int = 400) -> Path:
    """Tokens that count up by one or two: something to learn."""
    torch.manual_seed(3)
    shards = []
    for part, count in ((TRAIN, tokens), (HELD_OUT, held_out)):
        writer = ShardWriter(folder, part, "uint16", part=part)
        for _ in range(count // 25):
            writer.add((torch.randint(1, 3, (25,)).cumsum(0) % VOCABULARY).numpy(), text_bytes=25)
        shards.append(writer.close())
    write_manifest(
        folder, Manifest(dtype="uint16", vocabulary=VOCABULARY, tokenizer="", end_of_document=-1, shards=tuple(shards))
    )
    return folder


TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
WITH_GENERATION = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] }}<|end|>\n{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
SPECIAL = ["<s>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def tokenizer(folder: Path, template: str | None = TEMPLATE) -> Path:
    """A byte-level tokenizer with a chat template; its tokens are bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    plain.train_from_iterator(
        [], trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    )
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="<|end|>")
    made.chat_template = template
    made.save_pretrained(folder)
    return folder
