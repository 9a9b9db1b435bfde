"""augmented-evaluation-data: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split

import surefoot
from tests.checks.loaders import KINDS, TOLD, by_permutation, stepped, trained
from tests.checks.programs import mlp, named, twin
from tests.checks.samples.programs import AUGMENTED, OTHERS, Maps, Noisy, Samples, classified, told

pytestmark = pytest.mark.sweep


@twin("augmented-evaluation-data")
def _(buggy):
    data = Noisy("global")
    train, valid = random_split(data, [32, 16], generator=torch.Generator().manual_seed(0))
    if not buggy:
        valid = Subset(Noisy("none"), valid.indices)
    return trained(DataLoader(train, 8, shuffle=True), evaluation=DataLoader(valid, 8))


@pytest.mark.parametrize("augmented", [True, False])
def test_batches_that_are_augmented_on_their_way_into_an_evaluated_model(augmented):
    valid = DataLoader(TensorDataset(TOLD[128:], KINDS[128:]), 16)

    def evaluate(model):
        model.eval()
        with torch.no_grad():
            for x, _ in valid:
                model(x * (1 + torch.rand(())) if augmented else x)
        model.train()

    assert stepped(by_permutation, evaluate=evaluate) == (["augmented-evaluation-data"] if augmented else [])


def evaluated(make, loss, *, classes):
    training, validation = random_split(Samples(make), [48, 16], torch.Generator().manual_seed(0))
    held = DataLoader(validation, 8)

    def evaluate(model):
        for batch in held:
            loss(model, batch)

    return told(DataLoader(training, 8, shuffle=True), loss, model=mlp(classes=classes), evaluate=evaluate)


def noise(of, index):
    return of.x[index] + torch.randn(4)


def test_noise_beside_what_is_clean_is_the_task_in_evaluation_too():
    def restored(model, batch):
        return F.mse_loss(model(batch[0]), batch[1])

    assert evaluated(lambda of, index: (noise(of, index), of.x[index]), restored, classes=4) == []
    assert evaluated(lambda of, index: (noise(of, index), of.y[index]), classified, classes=2) == AUGMENTED


def test_two_views_of_each_sample_are_the_task():
    def contrasted(model, batch):
        one, other = (F.normalize(model(each), dim=1) for each in batch[:2])
        return F.cross_entropy(one @ other.t() / 0.2, torch.arange(len(one)))

    assert evaluated(lambda of, index: (noise(of, index), noise(of, index), of.y[index]), contrasted, classes=3) == []


WORDS, LENGTH, UNKNOWN = 30, 12, 1


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


@pytest.mark.parametrize(
    ("train", "valid", "expected"),
    [
        ("both", "", []),
        ("pictures", "", OTHERS),
        ("both", "both", ["augmented-evaluation-data"]),
    ],
)
def test_pictures_that_are_flipped_with_their_maps(train, valid, expected):
    loader = DataLoader(Maps(32, train), 8, shuffle=True)
    model, evaluation = nn.Conv2d(1, 1, 3, padding=1), DataLoader(Maps(16, valid), 8)
    found = trained(loader, evaluation=evaluation, model=model, loss=F.binary_cross_entropy_with_logits)
    assert named(found) == expected
