"""Review classifier that survives pre-emption: the job is killed after some epochs and a new job resumes it.

Both jobs run in this script, one after the other, and share nothing but the checkpoint file.
"""
import argparse
import math
import os
import random
import tempfile

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence

GOOD = ["superb", "lovely", "sturdy", "quick", "bright", "clever"]
BAD = ["broken", "dull", "flimsy", "late", "noisy", "awful"]
FILLER = [f"word{i}" for i in range(60)]


def write_reviews(count, seed):
    """A review is positive if it has more good than bad words, where 'not' turns the next word around."""
    rng = random.Random(seed)
    reviews = []
    for _ in range(count):
        label = rng.randint(0, 1)
        words = [rng.choice(FILLER) for _ in range(rng.randint(4, 16))]
        for _ in range(rng.randint(1, 3)):
            pleased = label == 1 if rng.random() < 0.93 else label == 0
            negated = rng.random() < 0.25
            word = rng.choice(GOOD if pleased != negated else BAD)
            at = rng.randint(0, len(words))
            words[at:at] = ["not", word] if negated else [word]
        reviews.append((words, label))
    return reviews


def split_reviews(reviews, seed):
    shuffled = list(reviews)
    random.Random(seed).shuffle(shuffled)
    return shuffled[:1280], shuffled[1280:1600], shuffled[1600:]


def build_vocab(reviews):
    words = [word for text, _ in reviews for word in text]
    random.shuffle(words)
    return {word: i + 1 for i, word in enumerate(dict.fromkeys(words))}


def encode(reviews, vocab):
    ids = [torch.tensor([vocab.get(word, 0) for word in text]) for text, _ in reviews]
    lengths = torch.tensor([len(row) for row in ids])
    labels = torch.tensor([label for _, label in reviews])
    return pad_sequence(ids, batch_first=True), lengths, labels


class ReviewNet(nn.Module):
    def __init__(self, vocab_size, dim=32, hidden=40):
        super().__init__()
        self.embed = nn.Embedding(vocab_size + 1, dim, padding_idx=0)
        self.drop = nn.Dropout(0.15)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 2)

    def forward(self, ids, lengths):
        states, _ = self.rnn(self.drop(self.embed(ids)))
        last = states[torch.arange(len(ids)), lengths - 1]
        return self.out(self.drop(last))


class Job:
    def __init__(self, args, path, job_seed):
        random.seed(job_seed)
        torch.manual_seed(job_seed)
        self.args, self.path = args, path
        saved = torch.load(path, weights_only=False) if os.path.exists(path) else None
        train, valid, test = split_reviews(write_reviews(2000, seed=args.data_seed), seed=args.split_seed)
        self.vocab = saved["vocab"] if saved else build_vocab(train)
        self.parts = {n: encode(p, self.vocab) for n, p in (("train", train), ("valid", valid), ("test", test))}
        self.model = ReviewNet(len(self.vocab))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        total = args.epochs * math.ceil(len(train) / args.batch)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda s: min((s + 1) / 15, 0.5 * (1 + math.cos(math.pi * min(1.0, s / total)))))
        self.next_epoch = 0
        if saved:
            self.restore(saved)

    def save(self, epoch):
        checkpoint = {
            "epoch": epoch,
            "vocab": self.vocab,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "rng": torch.get_rng_state(),
        }
        torch.save(checkpoint, self.path + ".tmp")
        os.replace(self.path + ".tmp", self.path)

    def restore(self, saved):
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scheduler.load_state_dict(saved["scheduler"])
        torch.set_rng_state(saved["rng"])
        self.next_epoch = saved["epoch"] + 1

    def train_epoch(self):
        self.model.train()
        ids, lengths, labels = self.parts["train"]
        total = 0.0
        for rows in torch.randperm(len(ids)).split(self.args.batch):
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(ids[rows], lengths[rows]), labels[rows])
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            total += loss.item() * len(rows)
        return total / len(ids)

    @torch.no_grad()
    def accuracy(self, part):
        self.model.eval()
        ids, lengths, labels = self.parts[part]
        return (self.model(ids, lengths).argmax(dim=1) == labels).float().mean().item()

    def run(self, killed_after=None):
        for epoch in range(self.next_epoch, self.args.epochs):
            loss = self.train_epoch()
            print(f"epoch {epoch}: train loss {loss:.4f} valid accuracy {self.accuracy('valid'):.3f}")
            self.save(epoch)
            if epoch == killed_after:
                return
        scores = {part: self.accuracy(part) for part in ("train", "valid", "test")}
        print("final: " + " ".join(f"{part} accuracy {score:.3f}" for part, score in scores.items()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--kill-after", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--data-seed", type=int, default=4)
    parser.add_argument("--split-seed", type=int, default=8)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        Job(args, path, job_seed=100).run(killed_after=args.kill_after)
        print("pre-empted; a new job takes over")
        Job(args, path, job_seed=200).run()


if __name__ == "__main__":
    main()
