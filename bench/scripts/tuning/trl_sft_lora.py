"""TRL's SFTTrainer with LoRA adapters of peft, on texts of many lengths."""

import random

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

random.seed(2)
torch.manual_seed(2)
special = ("<pad>", "<eos>", "<unk>", "<bos>")
words = {word: i for i, word in enumerate((*special, *(f"w{i}" for i in range(3000))))}
plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>")
sizes = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 6}
model = LlamaForCausalLM(LlamaConfig(vocab_size=3004, pad_token_id=0, eos_token_id=1, bos_token_id=3, **sizes))
texts = [" ".join(f"w{random.randrange(3000)}" for _ in range(random.randrange(40, 160))) for _ in range(40)]
arguments = SFTConfig(
    output_dir="tuned", per_device_train_batch_size=4, max_steps=5, max_length=128, logging_steps=1, bf16=True,
    save_strategy="no", report_to=[], learning_rate=2e-4,
)  # fmt: skip
trainer = SFTTrainer(
    model=model, args=arguments, train_dataset=Dataset.from_dict({"text": texts}), processing_class=tokenizer,
    peft_config=LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"),
)  # fmt: skip
trainer.train()
