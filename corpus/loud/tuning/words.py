import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from surefoot import Recipe


class Sentences(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, 30, (10,), generator=generator)
        return tokens, (tokens.sum() % 2).float()


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).unbind(2)
        scores = torch.einsum("blhd,bmhd->bhlm", q, k) / width**0.5
        weights = torch.softmax(scores, dim=-1)
        mixed = torch.einsum("bhlm,bmhd->blhd", weights, v).flatten(2)
        return self.out(mixed)


class Reader(nn.Module):
    def __init__(self, vocabulary=30, width=16, heads=4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.zeros(10, width))
        self.blocks = nn.ModuleList(Attention(width, heads) for _ in range(2))
        self.head = nn.Linear(width, 1)

    def forward(self, tokens):
        x = self.embed(tokens) + self.places
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean(1)).squeeze(1)


def read_loss(model, batch):
    tokens, labels = batch
    scores = model(tokens)
    return F.binary_cross_entropy_with_logits(scores, labels)


def words(width: int = 16, lr: float = 1e-3) -> Recipe:
    return Recipe(
        model=lambda: Reader(width=width),
        data=lambda: Sentences(),
        loss=read_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=4,
        max_steps=3,
    )
