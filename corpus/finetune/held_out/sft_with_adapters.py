"""TRL's SFT on prompts and completions, with adapters that TRL makes."""

import random

from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def pairs(count: int) -> list[dict]:
    drawn = random.Random(12)
    rows = []
    for _ in range(count):
        a, b = drawn.randint(1, 50), drawn.randint(1, 50)
        rows.append(
            {
                "prompt": f"<s>[INST] Add {a} boats and {b} boats [/INST]",
                "completion": f" There are {a + b} boats" + ", I am sure" * drawn.randint(0, 3),
            }
        )
    return rows


def main():
    tokenizer = AutoTokenizer.from_pretrained("base/inst-tiny")
    model = AutoModelForCausalLM.from_pretrained("base/inst-tiny")
    tokenizer.backend_tokenizer.post_processor = None
    adapter = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    args = SFTConfig(
        output_dir="out",
        learning_rate=2e-4,
        max_steps=12,
        per_device_train_batch_size=4,
        max_length=96,
        logging_steps=4,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
    )
    trainer = SFTTrainer(
        model,
        args=args,
        train_dataset=Dataset.from_list(pairs(64)),
        processing_class=tokenizer,
        peft_config=adapter,
    )
    trainer.train()
    trainer.save_model("adapter")


main()
