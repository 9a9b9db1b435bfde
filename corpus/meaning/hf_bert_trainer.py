"""Fine-tune a tiny BERT classifier (built from a config) on synthetic support tickets with the Hugging Face Trainer."""
import argparse
import random
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import (BertConfig, BertForSequenceClassification, Trainer, TrainingArguments,
                          get_linear_schedule_with_warmup, set_seed)

PAD, CLS, SEP = 0, 1, 2
TOPICS = ["billing", "outage", "feedback"]
TOPIC_WORDS = {"billing": range(10, 22), "outage": range(22, 34), "feedback": range(34, 46)}
FILLER = range(46, 120)
FREQ = [0.6, 0.28, 0.12]


def write_ticket(topic, rng):
    """Mostly filler; a few words of the topic, and sometimes a stray word of another one."""
    words = [rng.choice(FILLER) for _ in range(rng.randint(8, 20))]
    words += [rng.choice(TOPIC_WORDS[topic]) for _ in range(rng.randint(3, 4))]
    if rng.random() < 0.5:
        other = rng.choice([t for t in TOPICS if t != topic])
        words += [rng.choice(TOPIC_WORDS[other]) for _ in range(rng.randint(1, 2))]
    rng.shuffle(words)
    return [CLS] + words + [SEP]


def build_corpus(n, seed):
    rng = random.Random(seed)
    tickets = []
    for _ in range(n):
        label = rng.choices(range(len(TOPICS)), FREQ)[0]
        tickets.append({"input_ids": write_ticket(TOPICS[label], rng), "label": label})
    return tickets


def split_corpus(tickets, test_fraction, seed):
    tickets = list(tickets)
    random.Random(seed).shuffle(tickets)
    cut = int(len(tickets) * (1 - test_fraction))
    return oversample(tickets[:cut], seed), tickets[cut:]


def oversample(tickets, seed):
    """Repeat tickets of the rarest topic so that it is not drowned."""
    rare = [t for t in tickets if t["label"] == len(TOPICS) - 1]
    return tickets + rare


class TicketDataset(Dataset):
    def __init__(self, tickets):
        # sorted by length, so that batches at evaluation need little padding
        self.tickets = sorted(tickets, key=lambda t: len(t["input_ids"]))
        self.labels = [t["label"] for t in self.tickets]

    def __len__(self):
        return len(self.tickets)

    def __getitem__(self, i):
        return {"input_ids": self.tickets[i]["input_ids"], "labels": self.labels[i]}


def collate(features):
    longest = max(len(f["input_ids"]) for f in features)
    ids = torch.full((len(features), longest), PAD)
    mask = torch.zeros((len(features), longest), dtype=torch.long)
    for row, f in enumerate(features):
        n = len(f["input_ids"])
        ids[row, :n] = torch.tensor(f["input_ids"])
        mask[row, :n] = 1
    labels = torch.tensor([f["labels"] for f in features])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class WeightedTrainer(Trainer):
    """Cross-entropy weighted by inverse class frequency."""

    def __init__(self, *args, class_weights=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.class_weights = class_weights

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        loss = F.cross_entropy(outputs.logits, labels, weight=self.class_weights)
        return (loss, outputs) if return_outputs else loss


def compute_metrics(pred):
    guess = pred.predictions.argmax(axis=-1)
    gold = pred.label_ids
    f1 = []
    for c in range(len(TOPICS)):
        tp = np.sum((guess == c) & (gold == c))
        f1.append(2 * tp / max(1, np.sum(guess == c) + np.sum(gold == c)))
    return {"accuracy": float(np.mean(guess == gold)), "macro_f1": float(np.mean(f1))}


def build_model():
    config = BertConfig(vocab_size=120, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=96, max_position_embeddings=40, num_labels=2, pad_token_id=PAD)
    return BertForSequenceClassification(config)


def resize_head(model, num_labels):
    """Swap the classification head, as one does when the backbone came with another task."""
    model.classifier = torch.nn.Linear(model.config.hidden_size, num_labels)
    model.config.num_labels = model.num_labels = num_labels
    return model


def build_optimizer(model, lr, weight_decay):
    no_decay = ("bias", "LayerNorm.weight")
    groups = [
        {"params": [p for n, p in model.named_parameters() if not n.endswith(no_decay)], "weight_decay": weight_decay},
        {"params": [p for n, p in model.named_parameters() if n.endswith(no_decay)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=24)
    args = parser.parse_args()
    set_seed(11)

    train_tickets, test_tickets = split_corpus(build_corpus(900, seed=3), 0.25, seed=4)
    train_set, test_set = TicketDataset(train_tickets), TicketDataset(test_tickets)
    counts = np.bincount(train_set.labels, minlength=len(TOPICS))
    weights = torch.tensor(counts.sum() / (len(TOPICS) * counts), dtype=torch.float32)

    model = build_model()
    model = resize_head(model, len(TOPICS))
    optimizer = build_optimizer(model, args.lr, 0.01)
    scheduler = get_linear_schedule_with_warmup(optimizer, args.steps // 10, args.steps)
    with tempfile.TemporaryDirectory() as out:
        targs = TrainingArguments(output_dir=out, max_steps=args.steps, per_device_train_batch_size=args.batch_size,
                                  per_device_eval_batch_size=64, logging_steps=40, eval_strategy="no",
                                  save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, seed=11,
                                  max_grad_norm=1.0, dataloader_pin_memory=False)
        trainer = WeightedTrainer(model=model, args=targs, train_dataset=train_set, eval_dataset=test_set,
                                  data_collator=collate, compute_metrics=compute_metrics,
                                  optimizers=(optimizer, scheduler), class_weights=weights)
        result = trainer.train()
        metrics = trainer.evaluate()
    print(f"final train loss {result.training_loss:.4f}, test loss {metrics['eval_loss']:.4f}, "
          f"test accuracy {metrics['eval_accuracy']:.3f}, macro F1 {metrics['eval_macro_f1']:.3f}")


if __name__ == "__main__":
    main()
