"""Trains a reward model on preferences with TRL's RewardTrainer on a Qwen3 body with a score head.

Needs transformers, trl, datasets.
"""

import argparse
import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForSequenceClassification
from trl import RewardConfig, RewardTrainer


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--max-length", type=int, default=96)
    return parser.parse_args()


def build_tokenizer(size):
    vocab = {w: i for i, w in enumerate(["<pad>", "<eos>", "<unk>"] + [f"r{i}" for i in range(size - 3)])}
    tok = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def preference(rng, size):
    def text(n):
        return " ".join(f"r{rng.randrange(size - 3)}" for _ in range(n))

    prompt = text(rng.randint(5, 20))
    return {"chosen": f"{prompt} {text(rng.randint(20, 60))}", "rejected": f"{prompt} {text(rng.randint(5, 30))}"}


if __name__ == "__main__":
    cli = parse_args()
    rng = random.Random(8)
    torch.manual_seed(8)
    size = 2000
    config = Qwen3Config(
        vocab_size=size,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=cli.layers,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=32,
        pad_token_id=0,
        eos_token_id=1,
        num_labels=1,
    )
    model = Qwen3ForSequenceClassification(config)
    trainer = RewardTrainer(
        model=model,
        args=RewardConfig(
            output_dir="reward",
            per_device_train_batch_size=cli.batch,
            max_steps=cli.steps,
            max_length=cli.max_length,
            learning_rate=1e-4,
            center_rewards_coefficient=0.01,
            logging_steps=1,
            save_steps=4,
            save_total_limit=1,
            bf16=torch.cuda.is_available(),
            report_to="none",
        ),
        train_dataset=Dataset.from_list([preference(rng, size) for _ in range(40)]),
        processing_class=build_tokenizer(size),
    )
    trainer.train()
