import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from surefoot import Recipe

PAD = 0


class Sentences(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        words = torch.randint(1, 18, (6,), generator=generator)
        tags = words % 4
        return {"words": words, "tags": tags}


def joined(samples):
    words = torch.stack([each["words"] for each in samples])
    tags = torch.stack([each["tags"] for each in samples])
    return words, tags


class Tagger(nn.Module):
    def __init__(self, words=18, width=10, tags=4):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=PAD)
        self.mix = nn.Conv1d(width, width, 3, padding=1)
        self.drop = nn.Dropout(0.2)
        self.tag = nn.Linear(width, tags)

    def forward(self, words):
        x = self.embed(words).permute(0, 2, 1)
        x = self.drop(torch.tanh(self.mix(x))).permute(0, 2, 1)
        return self.tag(x)


def tag_loss(model, batch):
    words, tags = batch
    scores = model(words)
    return cross_entropy(scores.flatten(0, 1), tags.flatten())


def tagger(width: int = 10, lr: float = 1e-2) -> Recipe:
    return Recipe(
        model=lambda: Tagger(width=width),
        data=lambda: Sentences(),
        loss=tag_loss,
        collate=joined,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr),
        micro_batch_size=4,
        max_steps=3,
    )
