"""The folders that the fine-tuning programs start from: small models with random weights, and their tokenizers.

python corpus/finetune/base_models.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] }}<|im_end|>\n{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
INST = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}[INST] {{ message['content'] }} "
    "[/INST]{% else %} {{ message['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
)
TEXT = """The river is wide in spring and narrow in late summer. A ferry crosses it twice a day, except on Sundays.
Who built the old bridge? The miller built it with his two brothers, after the flood had taken the first one away.
Question: how many boats are in the harbour? Answer: seven boats and one raft. What is the colour of the northern door?
It is green. ### Instruction: name a bird. ### Response: the heron. user assistant system summarise translate sentence:
positive negative neutral the weather was dreadful and wonderful, we liked the soup but not the bread."""


def tokenizer(special: list[str], *, template: str | None = None, start: str | None = None, **named: str):
    """A byte-level tokenizer. `start` is the token that it puts before every text."""
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator([TEXT], trainer)
    if start is not None:
        plain.post_processor = processors.TemplateProcessing(
            single=f"{start} $A", pair=f"{start} $A {start}:1 $B:1", special_tokens=[(start, plain.token_to_id(start))]
        )
    return PreTrainedTokenizerFast(tokenizer_object=plain, chat_template=template, **named)


def llama(words: PreTrainedTokenizerFast) -> torch.nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, bos_token_id=words.bos_token_id,
            eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id,
        )
    )  # fmt: skip


def save(folder: Path, model: torch.nn.Module, words: PreTrainedTokenizerFast | None = None) -> None:
    model.save_pretrained(folder)
    if words is not None:
        words.save_pretrained(folder)


def build(to: Path) -> None:
    """Writes all folders."""
    torch.manual_seed(0)
    words = tokenizer(
        ["<pad>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"],
        template=CHATML, pad_token="<pad>", eos_token="<|im_end|>",
    )  # fmt: skip
    save(to / "chatml-tiny", llama(words), words)
    words = tokenizer(
        ["<unk>", "<s>", "</s>", "<pad>"],
        template=INST, start="<s>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
    )  # fmt: skip
    save(to / "inst-tiny", llama(words), words)
    words = tokenizer(["<|endoftext|>"], bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    gpt2 = transformers.GPT2Config(
        vocab_size=len(words), n_positions=256, n_embd=32, n_layer=2, n_head=2,
        bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id,
    )  # fmt: skip
    save(to / "gpt2-tiny", transformers.GPT2LMHeadModel(gpt2), words)
    words = tokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", start="[CLS]",
    )  # fmt: skip
    bert = transformers.BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=128, pad_token_id=words.pad_token_id,
    )  # fmt: skip
    save(to / "bert-tiny", transformers.BertModel(bert), words)
    words = tokenizer(["<pad>", "</s>", "<unk>"], pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    plain = words.backend_tokenizer
    plain.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", plain.token_to_id("</s>"))]
    )
    t5 = transformers.T5Config(
        vocab_size=len(words), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0,
        pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    save(to / "t5-tiny", transformers.T5ForConditionalGeneration(t5), words)
    vit = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=16, patch_size=4
    )
    save(to / "vit-tiny", transformers.ViTModel(vit))
    resnet = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    save(to / "resnet-tiny", transformers.ResNetModel(resnet))


if __name__ == "__main__":
    build(Path(sys.argv[1]))
