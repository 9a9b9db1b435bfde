"""A small GPT-2 counts in steps: embeddings shared between input and output, with the Trainer of transformers."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
NUMBERS = 40
LONGEST = 14


class Counting(Dataset):
    """Sequences start, start + step, start + 2 step, ... modulo 40, of 6 to 12 numbers."""

    def __init__(self, progressions, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for start, step in progressions:
            length = int(torch.randint(6, 13, (), generator=g))
            numbers = [FIRST + (start + i * step) % NUMBERS for i in range(length)]
            self.rows.append([BOS, *numbers, EOS])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    ids = torch.full((len(rows), LONGEST), PAD)
    mask = torch.zeros(len(rows), LONGEST, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    labels = ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def split(seed):
    """Which starts and steps are trained on, and which are for the evaluation."""
    everything = [(start, step) for start in range(NUMBERS) for step in range(1, 13)]
    order = torch.randperm(len(everything), generator=torch.Generator().manual_seed(seed)).tolist()
    shuffled = [everything[i] for i in order]
    return shuffled[:420], shuffled[420:]


def build():
    config = GPT2Config(
        vocab_size=FIRST + NUMBERS,
        n_positions=LONGEST,
        n_embd=48,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    model = GPT2LMHeadModel(config)
    print(f"{model.num_parameters()} parameters")
    return model


def main():
    set_seed(17)
    trained, held_back = split(seed=5)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=5,
            per_device_train_batch_size=20,
            per_device_eval_batch_size=30,
            learning_rate=4e-3,
            weight_decay=0.01,
            warmup_steps=10,
            lr_scheduler_type="cosine",
            eval_strategy="epoch",
            save_strategy="no",
            logging_steps=20,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=17,
        )
        trainer = Trainer(
            model=build(),
            args=arguments,
            train_dataset=Counting(trained, seed=1),
            eval_dataset=Counting(held_back, seed=2),
            data_collator=collate,
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()
