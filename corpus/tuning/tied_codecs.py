"""Melodies as tokens: an encoder and a decoder that share one embedding, which is the decoder's head too."""

import math

import torch
import torch.nn.functional as F
from torch import nn

PAD, START, NOTES = 0, 1, 24
VOCAB = NOTES + 2


def melodies(count, generator):
    """Seeds of four notes and what follows from them: each is answered a third higher, backwards, then sustained."""
    seeds = torch.randint(2, VOCAB - 4, (count, 4), generator=generator)
    answers = torch.cat([seeds.flip(1) + 4, seeds[:, :1], seeds[:, :1] + 2], dim=1)
    keep = torch.randint(4, 7, (count,), generator=generator)
    answers[torch.arange(6) >= keep[:, None]] = PAD
    return seeds, answers


class Codec(nn.Module):
    def __init__(self, dim=40):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)
        with torch.no_grad():
            self.embed.weight[PAD].zero_()
        self.scale = math.sqrt(dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * dim, dim)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.look = nn.Linear(2 * dim, dim)
        self.head = nn.Linear(dim, VOCAB)
        self.head.weight = self.embed.weight

    def forward(self, seeds, before):
        kept, last = self.encoder(self.embed(seeds) * self.scale)
        first = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=1)))
        kept = self.bridge(kept)
        h, _ = self.decoder(self.embed(before) * self.scale, first[None].contiguous())
        weight = (h @ kept.transpose(1, 2) / self.scale).softmax(dim=-1)
        return self.head(torch.tanh(self.look(torch.cat([h, weight @ kept], dim=-1))))


def shifted(answers):
    return torch.cat([torch.full((len(answers), 1), START), answers[:, :-1]], dim=1)


def melody_loss(model, seeds, answers):
    logits = model(seeds, shifted(answers))
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten(), ignore_index=PAD)


@torch.no_grad()
def notes_right(model, seeds, answers):
    model.eval()
    guess = model(seeds, shifted(answers)).argmax(dim=-1)
    known = answers != PAD
    return (guess == answers)[known].float().mean().item()


torch.manual_seed(8)
generator = torch.Generator().manual_seed(9)
seeds, answers = melodies(720, generator)
held_seeds, held_answers = melodies(120, generator)
overlap = (held_seeds[:, None] == seeds[None]).all(dim=2).any(dim=1)
held_seeds, held_answers = held_seeds[~overlap], held_answers[~overlap]

model = Codec()
optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=0.01)
steps = 5 * math.ceil(len(seeds) / 48)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 6, 1 - step / (steps + 1)))
for epoch in range(5):
    model.train()
    total = 0.0
    for rows in torch.randperm(len(seeds)).split(48):
        loss = melody_loss(model, seeds[rows], answers[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        total += loss.item() * len(rows)
    right = notes_right(model, held_seeds, held_answers)
    print(f"epoch {epoch} loss {total / len(seeds):.3f} held notes right {right:.1%}")

torch.save(model.state_dict(), "codec.pt")
again = Codec()
again.load_state_dict(torch.load("codec.pt"))
print(f"loaded {notes_right(again, held_seeds, held_answers):.1%}")
