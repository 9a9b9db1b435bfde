"""Commands and replies, learned by a tiny Llama with the Hugging Face Trainer: replies count, padding does not."""

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

PAD, BOS, EOS, SAY = 0, 1, 2, 3
FIRST, VOCAB, IGNORED = 4, 36, -100


class Commands(Dataset):
    """A command of some words; the reply says them backwards and stops."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(count):
            size = int(torch.randint(3, 7, (), generator=g))
            words = (FIRST + torch.randint(VOCAB - FIRST, (size,), generator=g)).tolist()
            prompt, reply = [BOS, *words, SAY], [*reversed(words), EOS]
            self.rows.append((prompt, reply))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        prompt, reply = self.rows[i]
        return {"input_ids": prompt + reply, "labels": [IGNORED] * len(prompt) + reply}


def collate(features):
    longest = max(len(feature["input_ids"]) for feature in features)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for feature in features:
        ids, labels = feature["input_ids"], feature["labels"]
        gap = longest - len(ids)
        batch["input_ids"].append(ids + [PAD] * gap)
        batch["attention_mask"].append([1] * len(ids) + [0] * gap)
        batch["labels"].append(labels + [IGNORED] * gap)
    return {key: torch.tensor(rows) for key, rows in batch.items()}


def build(seed=170):
    set_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=32,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


if __name__ == "__main__":
    model = build()
    args = TrainingArguments(
        output_dir="commands",
        max_steps=24,
        per_device_train_batch_size=12,
        learning_rate=5e-3,
        lr_scheduler_type="cosine",
        warmup_steps=2,
        logging_steps=8,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=Commands(240, seed=1),
        eval_dataset=Commands(30, seed=2),
        data_collator=collate,
    )
    trainer.train()
    print(trainer.evaluate()["eval_loss"])
