"""Sentiment of padded sentences with an LSTM, as a recipe with its own collate function."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from surefoot import Recipe

PAD, WORDS, CLASSES = 0, 40, 3


class Sentences(Dataset):
    def __init__(self, samples: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, CLASSES, (samples,), generator=generator)
        self.texts = []
        for label in self.labels.tolist():
            length = int(torch.randint(4, 12, (), generator=generator))
            text = torch.randint(1 + CLASSES, WORDS, (length,), generator=generator)
            text[int(torch.randint(0, length, (), generator=generator))] = 1 + label
            self.texts.append(text)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.texts[index], self.labels[index]


def padded(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    texts = pad_sequence([text for text, _ in samples], batch_first=True, padding_value=PAD)
    lengths = torch.tensor([len(text) for text, _ in samples])
    return texts, lengths, torch.stack([label for _, label in samples])


class Reader(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor:
        embedded = self.embed(texts)
        states, _ = self.lstm(embedded)
        last = states[torch.arange(len(texts)), lengths - 1]
        return self.head(self.dropout(last))


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, int]:
    texts, lengths, labels = batch
    logits = model(texts, lengths)
    return F.cross_entropy(logits, labels, reduction="sum"), len(labels)


def reader(width: int = 24, dropout: float = 0.2, lr: float = 3e-3) -> Recipe:
    return Recipe(
        model=lambda: Reader(width, dropout),
        data=lambda: Sentences(400, seed=1),
        loss=class_loss,
        collate=padded,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=lr),
        micro_batch_size=16,
        max_grad_norm=1.0,
        max_steps=60,
    )
