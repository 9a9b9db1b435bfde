"""Trains all weights of a small Qwen2 on chats with TRL's SFTTrainer: a chat template, a loss on answers only.

Needs transformers, trl, datasets.
"""

import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import SFTConfig, SFTTrainer

random.seed(0)
torch.manual_seed(0)
SPECIAL = ["<pad>", "<unk>", "<|im_start|>", "<|im_end|>", "user", "assistant", "system", "\n"]
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|> ' + message['role'] + ' ' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + ' <|im_end|> ' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + ' <|im_end|> ' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|> assistant ' }}{% endif %}"
)


def make_tokenizer(size=3000):
    words = SPECIAL + [f"tok{i}" for i in range(size - len(SPECIAL))]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>", eos_token="<|im_end|>"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def words(low, high):
    return " ".join(f"tok{random.randrange(2900)}" for _ in range(random.randint(low, high)))


def chat(_):
    turns = [{"role": "system", "content": words(3, 6)}]
    for _ in range(random.randint(1, 3)):
        turns += [{"role": "user", "content": words(5, 25)}, {"role": "assistant", "content": words(10, 50)}]
    return {"messages": turns}


tokenizer = make_tokenizer()
model = Qwen2ForCausalLM(
    Qwen2Config(
        vocab_size=3000,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=3,
        bos_token_id=None,
    )
)
training_args = SFTConfig(
    output_dir="sft-full",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    gradient_checkpointing=False,
    num_train_epochs=1,
    learning_rate=5e-5,
    lr_scheduler_type="constant_with_warmup",
    warmup_steps=2,
    max_length=192,
    assistant_only_loss=True,
    logging_steps=1,
    save_strategy="epoch",
    bf16=torch.cuda.is_available(),
    report_to="none",
)
trainer = SFTTrainer(
    model=model,
    args=training_args,
    train_dataset=Dataset.from_list([chat(i) for i in range(28)]),
    eval_dataset=Dataset.from_list([chat(i) for i in range(4)]),
    processing_class=tokenizer,
)
trainer.train()
print(trainer.evaluate())
