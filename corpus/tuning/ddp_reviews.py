"""Moods of reviews on two ranks: ragged texts, some without a label, accumulation in two parts. Start by torchrun."""

import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WORDS, MOODS, LONGEST, PAD, UNKNOWN = 60, 3, 16, 0, -100
EPOCHS, BATCH, PARTS, LR = 5, 8, 2, 4e-3


class Reviews(Dataset):
    """Each mood has words of its own; about a third of the reviews has no label."""

    def __init__(self, count, seed, labelled=0.67):
        g = torch.Generator().manual_seed(seed)
        self.texts, self.moods = [], []
        for _ in range(count):
            mood = int(torch.randint(MOODS, (), generator=g))
            length = int(torch.randint(4, LONGEST + 1, (), generator=g))
            common = torch.randint(1 + 8 * MOODS, WORDS, (length,), generator=g)
            telling = torch.randint(1 + 8 * mood, 9 + 8 * mood, (length,), generator=g)
            self.texts.append(torch.where(torch.rand(length, generator=g) < 0.35, telling, common))
            self.moods.append(mood if torch.rand((), generator=g) < labelled else UNKNOWN)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index], self.moods[index]


def collate(rows):
    texts = nn.utils.rnn.pad_sequence([text for text, _ in rows], batch_first=True, padding_value=PAD)
    return texts, torch.tensor([mood for _, mood in rows])


class MoodNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.places = nn.Parameter(0.02 * torch.randn(LONGEST, width))
        self.attention = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, MOODS))

    def forward(self, texts):
        empty = texts == PAD
        x = self.words(texts) + self.places[: texts.shape[1]]
        mixed, _ = self.attention(x, x, x, key_padding_mask=empty, need_weights=False)
        x = self.norm(x + mixed).masked_fill(empty.unsqueeze(2), 0.0)
        return self.mlp(x.sum(dim=1) / (~empty).sum(dim=1, keepdim=True))


def evaluate(model, test, rank, world):
    """The share that is right of all test reviews; each rank reads its own."""
    model.eval()
    tally = torch.zeros(2)
    with torch.no_grad():
        own = [test[i] for i in range(rank, len(test), world)]
        for at in range(0, len(own), 16):
            texts, moods = collate(own[at : at + 16])
            tally[0] += (model.module(texts).argmax(dim=1) == moods).sum()
            tally[1] += len(moods)
    dist.all_reduce(tally)
    model.train()
    return (tally[0] / tally[1]).item()


def main():
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(60)
    net = MoodNet()
    model = DDP(net)
    torch.manual_seed(1000 + rank)
    train, test = Reviews(256, seed=1), Reviews(75, seed=2, labelled=1.1)
    sampler = DistributedSampler(train, num_replicas=world, rank=rank, shuffle=True, seed=9)
    loader = DataLoader(train, batch_size=BATCH, sampler=sampler, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    updates = EPOCHS * len(loader) // PARTS
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        batches = list(loader)
        for at in range(0, len(batches), PARTS):
            parts = batches[at : at + PARTS]
            labels = torch.tensor(float(sum((moods != UNKNOWN).sum() for _, moods in parts)))
            dist.all_reduce(labels)
            for number, (texts, moods) in enumerate(parts):
                last = number == len(parts) - 1
                with contextlib.nullcontext() if last else model.no_sync():
                    scores = model(texts)
                    loss = F.cross_entropy(scores, moods, ignore_index=UNKNOWN, reduction="sum") * world / labels
                    loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
        right = evaluate(model, test, rank, world)
        if rank == 0:
            print(f"epoch {epoch}: {100 * right:.1f}% right", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), os.environ.get("REVIEWS_OUT", "reviews.pt"))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    try:
        main()
    finally:
        dist.destroy_process_group()
