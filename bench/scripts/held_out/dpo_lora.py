"""Aligns a small Mistral with DPO under LoRA adapters: the frozen base is the reference.

Needs transformers, trl, peft, datasets.
"""

import random

import torch
from datasets import Dataset
from peft import LoraConfig, TaskType
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

VOCAB = 2400


def main():
    random.seed(21)
    torch.manual_seed(21)
    names = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    names |= {f"x{i}": i + 4 for i in range(VOCAB - 4)}
    backend = Tokenizer(models.WordLevel(names, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )

    def sentence(low, high):
        return " ".join(f"x{random.randrange(VOCAB - 4)}" for _ in range(random.randint(low, high)))

    rows = [
        {"prompt": sentence(8, 30), "chosen": " " + sentence(10, 60), "rejected": " " + sentence(5, 40)}
        for _ in range(32)
    ]
    base = MistralForCausalLM(
        MistralConfig(
            vocab_size=VOCAB,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=2,
            sliding_window=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    peft_config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        use_rslora=True,
    )
    config = DPOConfig(
        output_dir="dpo-lora",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=4,
        learning_rate=1e-4,
        beta=0.2,
        loss_type="ipo",
        max_length=96,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=1,
        save_strategy="no",
        bf16=torch.cuda.is_available(),
        report_to="none",
    )
    trainer = DPOTrainer(
        model=base,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.model.print_trainable_parameters()
    trainer.save_model("dpo-lora/adapter")


if __name__ == "__main__":
    main()
