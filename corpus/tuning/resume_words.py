"""A stream of words with carried state, stopped halfway and taken up again from its checkpoint in one script."""

import os
import sys

import numpy as np
import torch
import torch.nn as nn

WORDS, WIDTH, ROWS, SPAN, HALF, END = 30, 24, 8, 12, 12, 24


def write_stream(path, count, seed):
    rng = np.random.default_rng(seed)
    word, words = 0, []
    for _ in range(count):
        word = (word + rng.choice([1, 1, 1, 3, 7])) % WORDS
        words.append(word)
    np.array(words, dtype=np.uint16).tofile(path)


def rows_of(path):
    words = np.fromfile(path, dtype=np.uint16).astype(np.int64)
    kept = len(words) // ROWS * ROWS
    return torch.from_numpy(words[:kept]).view(ROWS, -1)


class WordModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.drop = nn.Dropout(0.1)
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, words, state):
        x = self.drop(self.embed(words))
        x, state = self.gru(x, state)
        return self.out(x), state


def build():
    model = WordModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=END)
    return model, optimizer, schedule


def save(model, optimizer, schedule, state, step):
    kept = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "state": state,
        "rng": torch.get_rng_state(),
        "step": step,
    }
    torch.save(kept, "words.tmp")
    os.replace("words.tmp", "words.pt")


def load(model, optimizer, schedule):
    kept = torch.load("words.pt")
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    schedule.load_state_dict(kept["schedule"])
    torch.set_rng_state(kept["rng"])
    return kept["state"], kept["step"]


def run(until, resume):
    rows = rows_of("stream.bin")
    model, optimizer, schedule = build()
    state, step = load(model, optimizer, schedule) if resume else (None, 0)
    model.train()
    while step < until:
        begin = step * SPAN
        x, y = rows[:, begin : begin + SPAN], rows[:, begin + 1 : begin + SPAN + 1]
        logits, state = model(x, state)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        schedule.step()
        state = state.detach()
        step += 1
    save(model, optimizer, schedule, state, step)
    return model, loss.item()


@torch.no_grad()
def evaluate(model):
    model.eval()
    rows = rows_of("fresh.bin")
    logits, _ = model(rows[:, :-1], None)
    return nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()


def main():
    torch.manual_seed(190)
    write_stream("stream.bin", ROWS * (END * SPAN + 1), seed=1)
    write_stream("fresh.bin", 400, seed=2)
    run(HALF, resume=False)
    model, loss = run(END, resume=True)
    print(f"train {loss:.3f} fresh {evaluate(model):.3f}", file=sys.stderr)


main()
