"""Masked words with a Hugging Face BERT and Trainer: its own collator, metrics, and a warm-up."""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments, set_seed

MASK, FIRST, WORDS, LENGTH = 1, 2, 42, 12


class Ladders(Dataset):
    """Words that climb, by none, one or two at a time."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        start = torch.randint(0, 6, (count, 1), generator=g)
        steps = torch.randint(0, 3, (count, LENGTH), generator=g)
        self.ids = FIRST + start + steps.cumsum(1)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i]}


class HideWords:
    """Hides about a fifth of the words; only those are to be guessed."""

    def __call__(self, features):
        ids = torch.stack([feature["input_ids"] for feature in features])
        hidden = torch.rand(ids.shape) < 0.2
        hidden[:, 0] |= ~hidden.any(dim=1)
        labels = ids.masked_fill(~hidden, -100)
        inputs = ids.masked_fill(hidden, MASK)
        return {"input_ids": inputs, "attention_mask": torch.ones_like(ids), "labels": labels}


def accuracy(prediction):
    guess, truth = prediction.predictions.argmax(-1), prediction.label_ids
    asked = truth != -100
    return {"accuracy": float((guess[asked] == truth[asked]).mean())}


def build_model():
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
    )
    return BertForMaskedLM(config)


def main():
    set_seed(15)
    arguments = TrainingArguments(
        output_dir="ladders",
        max_steps=30,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        learning_rate=5e-3,
        warmup_steps=4,
        weight_decay=0.01,
        eval_strategy="steps",
        eval_steps=10,
        logging_steps=10,
        save_strategy="no",
        remove_unused_columns=False,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    model = build_model()
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Ladders(320, seed=1),
        eval_dataset=Ladders(40, seed=2),
        data_collator=HideWords(),
        compute_metrics=accuracy,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
