"""TRL's DPOTrainer with a reference model, on pairs of many lengths."""

import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

random.seed(4)
torch.manual_seed(4)
special = ("<pad>", "<eos>", "<unk>", "<bos>")
words = {word: i for i, word in enumerate((*special, *(f"w{i}" for i in range(2000))))}
plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>")
sizes = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 6}
config = LlamaConfig(vocab_size=2004, pad_token_id=0, eos_token_id=1, bos_token_id=3, **sizes)


def text(least: int, most: int) -> str:
    return " ".join(f"w{random.randrange(2000)}" for _ in range(random.randrange(least, most)))


rows = {
    "prompt": [text(10, 30) for _ in range(32)],
    "chosen": [" " + text(20, 70) for _ in range(32)],
    "rejected": [" " + text(20, 70) for _ in range(32)],
}
arguments = DPOConfig(
    output_dir="preferred", per_device_train_batch_size=4, max_steps=5, max_length=128, logging_steps=1, bf16=True,
    save_strategy="no", report_to=[], beta=0.1,
)  # fmt: skip
trainer = DPOTrainer(
    model=LlamaForCausalLM(config), ref_model=LlamaForCausalLM(config), args=arguments,
    train_dataset=Dataset.from_dict(rows), processing_class=tokenizer,
)  # fmt: skip
trainer.train()
