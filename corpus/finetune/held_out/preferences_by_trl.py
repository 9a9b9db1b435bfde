"""DPO by TRL: adapters learn to prefer short answers."""

import random

from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

tokenizer = AutoTokenizer.from_pretrained("base/inst-tiny")
tokenizer.backend_tokenizer.post_processor = None
model = AutoModelForCausalLM.from_pretrained("base/inst-tiny")
model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
drawn = random.Random(17)
rows = []
for _ in range(48):
    bird = drawn.choice(["heron", "owl", "swift"])
    rows.append(
        {
            "prompt": f"<s>[INST] Describe the {bird} of day {drawn.randint(1, 90)} [/INST]",
            "chosen": f" The {bird} is grey" + " here" * drawn.randint(0, 2),
            "rejected": f" The {bird} is a bird and" + " very old" * drawn.randint(1, 4),
        }
    )
args = DPOConfig(
    output_dir="out",
    learning_rate=1e-4,
    beta=0.1,
    max_steps=10,
    per_device_train_batch_size=4,
    max_length=128,
    logging_steps=5,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
)
trainer = DPOTrainer(model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
trainer.train()
trainer.save_model("preferred")
