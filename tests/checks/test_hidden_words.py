"""Words that are hidden at random are an augmentation in evaluation, unless to find them is the task."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import surefoot

pytestmark = pytest.mark.sweep

WORDS, LENGTH, UNKNOWN = 30, 12, 1


class Texts(Dataset):
    def __init__(self, rows: slice, hide: float = 0.0, task: str = "label"):
        words = torch.randint(2, WORDS, (160, LENGTH), generator=torch.Generator().manual_seed(0))
        self.words, self.hide, self.task = words[rows], hide, task
        self.labels = (self.words[:, :4].sum(1) > 62).long()

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        words = self.words[index]
        hidden = torch.rand(LENGTH) < self.hide
        seen = words.masked_fill(hidden, UNKNOWN)
        if self.task == "restore":
            return seen, words
        if self.task == "guess":
            return seen, torch.where(hidden, words, -100)
        if self.task == "rank":
            drawn = torch.randint(2, WORDS, (LENGTH,))
            drawn[0] = words[0]
            return drawn, torch.tensor(0)
        return seen, self.labels[index]


class Model(nn.Module):
    def __init__(self, task: str):
        super().__init__()
        self.task, self.words = task, nn.Embedding(WORDS, 16)
        self.head = nn.Linear(16, {"label": 2, "rank": 1}.get(task, WORDS))

    def forward(self, words):
        hidden = self.words(words)
        if self.task == "label":
            return self.head(hidden.mean(1))
        scores = self.head(hidden)
        return scores.squeeze(-1) if self.task == "rank" else scores.transpose(1, 2)


def names(task: str, training: float, evaluation: float) -> set[str]:
    torch.manual_seed(0)
    model = Model(task)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    train_loader = DataLoader(Texts(slice(0, 120), training, task), 20, shuffle=True)
    test_loader = DataLoader(Texts(slice(120, 160), evaluation, task), 20)
    with surefoot.watch() as seen:
        for _ in range(3):
            model.train()
            for words, asked in train_loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(words), asked).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                sum(float(nn.functional.cross_entropy(model(words), asked)) for words, asked in test_loader)
    return {each.check for each in seen.findings.findings}


def test_words_that_are_hidden_in_evaluation_as_in_training_are_named():
    assert "augmented-evaluation-data" in names("label", 0.1, 0.1)


@pytest.mark.parametrize("task", ["label", "restore", "guess", "rank"])
def test_an_evaluation_without_it_or_of_it_is_right(task):
    hidden = {"label": 0.0, "rank": 0.0}.get(task, 0.2)
    assert "augmented-evaluation-data" not in names(task, 0.2, hidden)
