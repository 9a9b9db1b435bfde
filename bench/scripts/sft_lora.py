"""Fine-tunes a Llama with LoRA by TRL's SFTTrainer: `python sft_lora.py --model FOLDER [--four-bit]`."""

import argparse
import random

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--four-bit", action="store_true")
parser.add_argument("--batch-size", type=int, default=1)
parser.add_argument("--length", type=int, default=1024)
args = parser.parse_args()

random.seed(0)
quantization = BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16
)
model = AutoModelForCausalLM.from_pretrained(
    args.model, dtype=torch.bfloat16, quantization_config=quantization if args.four_bit else None
)
texts = [" ".join(f"w{random.randrange(200)}" for _ in range(args.length)) for _ in range(64)]
trainer = SFTTrainer(
    model=model,
    processing_class=AutoTokenizer.from_pretrained(args.model),
    train_dataset=Dataset.from_dict({"text": texts}),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    args=SFTConfig(
        output_dir="out",
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        max_length=args.length,
        max_steps=500,
        learning_rate=2e-4,
        bf16=True,
        logging_steps=10,
        report_to=[],
    ),
)
trainer.train()
