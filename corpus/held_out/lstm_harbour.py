"""Radio messages in a harbour: an LSTM marks ships, berths and times word by word, and tells whether it is urgent."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TAGS = ["<pad>", "other", "ship", "berth", "time"]
PAD = 0


@dataclass
class Config:
    seed: int = 17
    messages: int = 560
    held_back: int = 112
    micro: int = 16
    group: int = 2
    width: int = 40
    dropout: float = 0.15
    lr: float = 1e-2
    epochs: int = 5


class Harbour:
    """Messages in one file of word numbers, as the logger writes them, with the borders and tags in other files."""

    fillers = [f"filler{i}" for i in range(60)]
    ships = [f"ship{i}" for i in range(240)]
    numbers = [f"number{i}" for i in range(50)]
    words = ["<pad>", "at", "berth", "fire", "leak", "no", "now", *fillers, *numbers, *ships]

    def __init__(self, cfg: Config):
        rng = np.random.default_rng(cfg.seed)
        number = {word: i for i, word in enumerate(self.words)}
        stream, tags, ends, urgent = [], [], [], []
        for _ in range(cfg.messages):
            message = [(rng.choice(self.ships), 2)]
            message += [(word, 1) for word in rng.choice(self.fillers, rng.integers(0, 9))]
            if rng.random() < 0.7:
                message += [("berth", 1), (rng.choice(self.numbers), 3)]
            if rng.random() < 0.7:
                message += [("at", 1), (rng.choice(self.numbers), 4)]
            alarm, denied = rng.random() < 0.6, rng.random() < 0.4
            if alarm:
                message += [("no", 1)] * denied + [(rng.choice(["fire", "leak"]), 1), ("now", 1)]
            stream += [number[word] for word, _ in message]
            tags += [tag for _, tag in message]
            ends.append(len(stream))
            urgent.append(float(alarm and not denied))
        np.array(stream, dtype=np.uint16).tofile("harbour.bin")
        np.array(tags, dtype=np.uint8).tofile("tags.bin")
        words = np.memmap("harbour.bin", dtype=np.uint16, mode="r").astype(np.int64)
        tags = np.fromfile("tags.bin", dtype=np.uint8).astype(np.int64)
        self.words_of = [torch.from_numpy(part) for part in np.split(words, ends[:-1])]
        self.tags_of = [torch.from_numpy(part) for part in np.split(tags, ends[:-1])]
        self.urgent = torch.tensor(urgent)

    def batch(self, rows) -> dict[str, torch.Tensor]:
        pad = nn.utils.rnn.pad_sequence
        return {
            "words": pad([self.words_of[i] for i in rows], batch_first=True, padding_value=PAD),
            "tags": pad([self.tags_of[i] for i in rows], batch_first=True, padding_value=PAD),
            "urgent": self.urgent[rows],
        }


class Listener(nn.Module):
    def __init__(self, cfg: Config, words: int):
        super().__init__()
        self.dropout = cfg.dropout
        self.embed = nn.Embedding(words, cfg.width, padding_idx=PAD)
        self.lstm = nn.LSTM(cfg.width, cfg.width, num_layers=1, batch_first=True)
        self.mix = nn.Linear(cfg.width, cfg.width)
        self.tag = nn.Linear(cfg.width, len(TAGS))
        self.look = nn.Linear(cfg.width, 1)
        self.alarm = nn.Linear(cfg.width, 1)

    def forward(self, words):
        mask = words != PAD
        x = self.embed(words)
        x = F.dropout(x, self.dropout, training=self.training)
        h, _ = self.lstm(x)
        h = F.silu(self.mix(h))
        scores = self.look(h).squeeze(-1)
        scores = scores.masked_fill(~mask, float("-inf"))
        weights = F.softmax(scores, dim=1)
        pooled = (weights.unsqueeze(-1) * h).sum(dim=1)
        return self.tag(h), self.alarm(pooled).squeeze(-1)


class Radio:
    """Trains on groups of small batches that hold messages of like length; each word of a group counts the same."""

    def __init__(self, cfg: Config):
        torch.manual_seed(cfg.seed)
        self.cfg, self.data = cfg, Harbour(cfg)
        self.rng = np.random.default_rng(cfg.seed + 1)
        rows = self.rng.permutation(cfg.messages)
        self.train_rows, self.test_rows = rows[cfg.held_back :], rows[: cfg.held_back]
        self.model = Listener(cfg, len(Harbour.words))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        steps = cfg.epochs * len(self.train_rows) // (cfg.micro * cfg.group)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps, eta_min=1e-4)

    def groups(self):
        """Buckets by length within a shuffled epoch, then groups of buckets drawn in random order."""
        rows = self.rng.permutation(self.train_rows)
        rows = sorted(rows, key=lambda i: len(self.data.words_of[i]))
        buckets = [rows[i : i + self.cfg.micro] for i in range(0, len(rows), self.cfg.micro)]
        self.rng.shuffle(buckets)
        for i in range(0, len(buckets), self.cfg.group):
            yield [self.data.batch(bucket) for bucket in buckets[i : i + self.cfg.group]]

    def losses(self, batch):
        tags, alarm = self.model(batch["words"])
        tag_loss = F.cross_entropy(tags.transpose(1, 2), batch["tags"], ignore_index=PAD, reduction="sum")
        alarm_loss = F.binary_cross_entropy_with_logits(alarm, batch["urgent"], reduction="sum")
        return tag_loss, alarm_loss

    def train(self):
        for epoch in range(self.cfg.epochs):
            self.model.train()
            total, steps = 0.0, 0
            for group in self.groups():
                words = sum((batch["tags"] != PAD).sum().item() for batch in group)
                messages = sum(len(batch["urgent"]) for batch in group)
                self.optimizer.zero_grad()
                for batch in group:
                    tag_loss, alarm_loss = self.losses(batch)
                    loss = tag_loss / words + alarm_loss / messages
                    loss.backward()
                    total += loss.item()
                nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
                self.optimizer.step()
                self.schedule.step()
                steps += 1
            print(f"epoch {epoch}: loss {total / steps:.4f}", *self.test())

    @torch.no_grad()
    def test(self):
        self.model.eval()
        total = right = count = alarms = 0
        for start in range(0, len(self.test_rows), 32):
            batch = self.data.batch(self.test_rows[start : start + 32])
            tag_loss, _ = self.losses(batch)
            total += tag_loss.item()
            tags, alarm = self.model(batch["words"])
            real = batch["tags"] != PAD
            right += (tags.argmax(-1) == batch["tags"])[real].sum().item()
            count += real.sum().item()
            alarms += ((alarm > 0) == (batch["urgent"] > 0)).sum().item()
        return f"test {total / count:.4f}", f"words {right / count:.3f}", f"alarms {alarms / len(self.test_rows):.3f}"


if __name__ == "__main__":
    radio = Radio(Config())
    radio.train()
    torch.save(radio.model.state_dict(), "listener.pt")
