"""Phone recognition with CTC: frames of a made-up speaker in, phone sequence out, phone error rate."""
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

PHONES = "aeioskt"
BLANK = 0


@dataclass
class Config:
    n_train: int = 384
    n_test: int = 96
    n_mel: int = 12
    hidden: int = 48
    epochs: int = 9
    batch: int = 32
    lr: float = 6e-3
    seed: int = 11


def speak(n, templates, rng):
    """Returns (list of [frames, n_mel] arrays, list of phone strings)."""
    audio, text = [], []
    for _ in range(n):
        phones = rng.integers(len(PHONES), size=rng.integers(3, 8))
        frames = []
        for p in phones:
            frames += [templates[p]] * rng.integers(4, 8)
            frames += [np.zeros(templates.shape[1])] * rng.integers(2, 4)
        x = 40.0 + 9.0 * (np.stack(frames) + rng.normal(scale=0.55, size=(len(frames), templates.shape[1])))
        audio.append(x.astype(np.float32))
        text.append("".join(PHONES[p] for p in phones))
    return audio, text


def encode(text):
    return [PHONES.index(c) + 1 for c in text]


def greedy(path):
    """Best-path decoding: repeats are merged, then blanks dropped."""
    out, last = [], BLANK
    for c in path:
        if c != last and c != BLANK:
            out.append(PHONES[c - 1])
        last = c
    return "".join(out)


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


class Recognizer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(cfg.n_mel, cfg.hidden, 5, stride=2, padding=2), nn.BatchNorm1d(cfg.hidden), nn.ReLU(),
            nn.Dropout(0.3),
            nn.Conv1d(cfg.hidden, cfg.hidden, 3, padding=1), nn.BatchNorm1d(cfg.hidden), nn.ReLU())
        self.head = nn.Linear(cfg.hidden, len(PHONES) + 1)

    def forward(self, x):  # [batch, time, mel] -> [time / 2, batch, phone]
        h = self.front(x.transpose(1, 2)).permute(2, 0, 1)
        return self.head(h).log_softmax(dim=2)


class Runner:
    def __init__(self, cfg):
        torch.manual_seed(cfg.seed)
        self.cfg, self.rng = cfg, np.random.default_rng(cfg.seed)
        templates = self.rng.normal(size=(len(PHONES), cfg.n_mel))
        self.train_set = speak(cfg.n_train, templates, self.rng)
        self.test_set = speak(cfg.n_test, templates, self.rng)
        every = np.concatenate(self.train_set[0])
        self.mean, self.std = every.mean(0), every.std(0)
        self.model = Recognizer(cfg)
        self.ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)

    def batch(self, audio):
        feats = [torch.from_numpy((a - self.mean) / self.std) for a in audio]
        lengths = torch.tensor([(len(f) + 1) // 2 for f in feats])
        return nn.utils.rnn.pad_sequence(feats, batch_first=True), lengths

    def epoch(self):
        cfg, (audio, text) = self.cfg, self.train_set
        self.model.train()
        order, total = self.rng.permutation(len(audio)), 0.0
        for i in range(0, len(order), cfg.batch):
            pick = order[i:i + cfg.batch]
            x, lengths = self.batch([audio[j] for j in pick])
            targets = [encode(text[j]) for j in pick]
            target_lengths = torch.tensor([len(t) for t in targets])
            flat = torch.tensor([c for t in targets for c in t])
            self.opt.zero_grad()
            loss = self.ctc(self.model(x), flat, lengths, target_lengths)
            loss.backward()
            self.opt.step()
            total += loss.item() * len(pick)
        return total / len(order)

    @torch.no_grad()
    def phone_error_rate(self):
        audio, text = self.test_set
        self.model.eval()
        errors = 0
        for i in range(0, len(audio), self.cfg.batch):
            x, lengths = self.batch(audio[i:i + self.cfg.batch])
            paths = self.model(x).argmax(dim=2).T
            for path, n, ref in zip(paths, lengths, text[i:i + self.cfg.batch]):
                errors += edit_distance(greedy(path[:n].tolist()), ref)
        return errors / sum(len(t) for t in text)


if __name__ == "__main__":
    run = Runner(Config())
    print(f"untrained: phone error rate {run.phone_error_rate():.4f}")
    for e in range(run.cfg.epochs):
        loss = run.epoch()
        if e % 2 == 0:
            print(f"epoch {e + 1}: ctc loss {loss:.4f} phone error rate {run.phone_error_rate():.4f}")
    print(f"final phone error rate {run.phone_error_rate():.4f}")
