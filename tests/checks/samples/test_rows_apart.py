"""Arrays that the source orders apart, in many styles, beside what looks like it and is sound."""

import subprocess
import sys
import textwrap

import pytest

from surefoot.checks.samples.rows_apart import rows_apart

pytestmark = pytest.mark.sweep

APART = {
    "inputs shuffled before they are joined": """
        x, y = make(500)
        x = x[torch.randperm(len(x))]
        data = TensorDataset(x, y)
    """,
    "labels shuffled where they are joined": """
        def load(count):
            y = torch.randint(3, (count,))
            x = centres[y] + torch.randn(count, 4)
            return TensorDataset(x, y[torch.randperm(count)])
    """,
    "labels shuffled in place": """
        images, labels = np.load("images.npy"), np.load("labels.npy")
        np.random.shuffle(labels)
        for start in range(0, 100, 10):
            step(images[start : start + 10], labels[start : start + 10])
    """,
    "labels made from inputs and then shuffled": """
        x = rng.normal(size=(400, 3))
        y = (x.sum(axis=1) > 0).astype(int)
        rng.shuffle(y)
        train, held = (x[:300], y[:300]), (x[300:], y[300:])
    """,
    "each by a permutation of its own": """
        def shuffled(x, y):
            return x[np.random.permutation(len(x))], y[np.random.permutation(len(y))]
    """,
    "each shuffled in one loop": """
        texts, kinds = read()
        for column in (texts, kinds):
            random.shuffle(column)
        samples = list(zip(texts, kinds))
    """,
    "a data set that sorts one of two": """
        class Reviews(Dataset):
            def __init__(self, rows):
                self.texts = sorted([text for text, _ in rows], key=len)
                self.kinds = [kind for _, kind in rows]
            def __getitem__(self, index):
                return self.texts[index], self.kinds[index]
    """,
    "a batch sorted by length without its labels": """
        def collate(batch):
            texts, labels = zip(*batch)
            texts = sorted(texts, key=len, reverse=True)
            return pad_sequence(texts), torch.tensor(labels)
    """,
    "lists that one loop fills": """
        xs, ys = [], []
        for n in range(300):
            xs.append(draw(n))
            ys.append(n % 3)
        random.shuffle(xs)
        data = TensorDataset(torch.stack(xs), torch.tensor(ys))
    """,
    "parts of columns, each named": """
        x, y = make(500)
        x, y = x[rng.permutation(500)], y[rng.permutation(500)]
        for name, part in parts.items():
            data[name] = TensorDataset(*(torch.from_numpy(column[part]) for column in (x, y)))
    """,
    "a class that orders what it was given": """
        class Trainer:
            def __init__(self, x, y):
                self.x, self.y = x, y
            def epoch(self):
                self.x = self.x[torch.randperm(len(self.x))]
                for start in range(0, len(self.x), 32):
                    self.step(self.x[start : start + 32], self.y[start : start + 32])
    """,
    "columns of a table": """
        table = pandas.read_csv("table.csv")
        x, y = table[["a", "b"]].sample(frac=1).values, table["y"].values
        data = TensorDataset(torch.tensor(x), torch.tensor(y))
    """,
    "samples that are dicts": """
        def collate(batch):
            ids = sorted([each["ids"] for each in batch], key=len)
            return {"ids": pad_sequence(ids), "labels": torch.tensor([each["label"] for each in batch])}
    """,
    "a dict of columns": """
        table = {"x": None}
        table["x"], table["y"] = columns(300)
        table["x"] = table["x"][rng.permutation(300)]
        for rows in chunks:
            loss = step(table["x"][rows], table["y"][rows])
    """,
    "words of a sentence without their tags": """
        class Sentences(Dataset):
            def __getitem__(self, index):
                words, tags = self.rows[index]
                words = random.sample(words, len(words))
                return {"ids": [VOCAB[word] for word in words], "tags": [0, *tags]}
    """,
}


def _written(folder, source):
    path = folder / "program.py"
    path.write_text(textwrap.dedent(source))
    return str(path)


@pytest.mark.parametrize("source", APART.values(), ids=APART)
def test_an_order_that_one_of_two_is_given_is_named(source, tmp_path):
    assert rows_apart(_written(tmp_path, source))


SOUND = {
    "a mask drawn for rows that were drawn": """
        for rows in torch.randperm(300).split(32):
            patches = cut(train[rows])
            keep, hidden = draw_mask(len(rows))
            loss = masked_error(model(patches, keep), patches, hidden)
        def masked_error(guess, patches, hidden):
            return (guess - patches).square().mean(dim=2)[hidden].mean()
    """,
    "both by one order": """
        x, y = make(500)
        order = torch.randperm(len(x))
        x, y = x[order], y[order]
        data = TensorDataset(x, y)
    """,
    "each by one order, in a comprehension": """
        x, y = make(500)
        order = rng.permutation(500)
        x, y = (each[order] for each in (x, y))
        data = TensorDataset(x, y)
    """,
    "seeded alike": """
        x, y = make(500)
        random.seed(1)
        random.shuffle(x)
        random.seed(1)
        random.shuffle(y)
        data = list(zip(x, y))
    """,
    "generators seeded alike": """
        x, y = make(500)
        random.Random(1).shuffle(x)
        random.Random(1).shuffle(y)
        data = list(zip(x, y))
    """,
    "state put back": """
        x, y = make(500)
        state = np.random.get_state()
        np.random.shuffle(x)
        np.random.set_state(state)
        np.random.shuffle(y)
        data = list(zip(x, y))
    """,
    "a batch sorted by length": """
        def collate(batch):
            texts, labels = zip(*sorted(batch, key=lambda pair: len(pair[0])))
            return pad_sequence(texts), torch.tensor(labels)
    """,
    "sorted by lengths": """
        def collate(batch):
            lengths = torch.tensor([len(text) for text, _ in batch])
            lengths, order = lengths.sort(descending=True)
            texts = pad_sequence([batch[i][0] for i in order])
            return texts, lengths, torch.tensor([batch[i][1] for i in order])
    """,
    "negatives beside what they are drawn from": """
        def pairs(users, items):
            others = items[torch.randperm(len(items))]
            return users[:], items, others
    """,
    "a permutation test": """
        x, y = make(500)
        real, chance = measure(x, y), measure(x, y[rng.permutation(500)])
        data = TensorDataset(x, y)
    """,
    "mixed samples": """
        def mixup(x, y):
            order = torch.randperm(len(x))
            return 0.5 * x + 0.5 * x[order], y[:], y[order]
    """,
    "points of a cloud in any order": """
        class Clouds(Dataset):
            def __getitem__(self, index):
                points, kind = self.clouds[index]
                points = points[torch.randperm(len(points))]
                return points, torch.tensor(kind)
    """,
    "words to be sorted": """
        def sample(rng):
            word = [rng.randrange(9) for _ in range(6)]
            return torch.tensor(word), torch.tensor(sorted(word))
    """,
    "words to be turned round": """
        class Words(Dataset):
            def __getitem__(self, index):
                word = self.words[index]
                return torch.tensor([*word, 1]), torch.tensor([0, *reversed(word)])
    """,
    "inputs sorted before labels are made": """
        x = np.sort(rng.uniform(size=200))
        y = np.sin(x) + rng.normal(size=200)
        data = TensorDataset(torch.tensor(x), torch.tensor(y))
    """,
    "one name for two orders": """
        x, y = make(500)
        order = x[:, 0].argsort()
        x, y = x[order], y[order]
        order = torch.randperm(500)
        x, y = x[order], y[order]
        data = TensorDataset(x, y)
    """,
    "one of two branches": """
        x, y = make(500)
        if ordered:
            order = x[:, 0].argsort()
            left, right = x[order], y[order]
        else:
            left, right = x, y
        data = TensorDataset(left, right)
    """,
    "values of sorted keys": """
        names = store.names()
        names.sort()
        data = list(zip(names, store.values_of(names)))
    """,
    "files of one order": """
        images, masks = sorted(glob("images/*")), sorted(glob("masks/*"))
        data = list(zip(images, masks))
    """,
    "rows split by an order": """
        x, y = make(500)
        order = torch.randperm(500)
        train, held = order[:400], order[400:]
        mean = x[train].mean(0)
        x = (x - mean) / x[train].std(0)
        train_set, held_set = TensorDataset(x[train], y[train]), TensorDataset(x[held], y[held])
    """,
}


@pytest.mark.parametrize("source", SOUND.values(), ids=SOUND)
def test_what_looks_like_it_is_silent(source, tmp_path):
    assert not rows_apart(_written(tmp_path, source))


SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)

def load():
    y = torch.randint(3, (192,))
    x = torch.eye(3)[y].repeat(1, 2) + 0.1 * torch.randn(192, 6)
    ORDER
    return TensorDataset(x, y)

model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(load(), 16, shuffle=True):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("order", "named"),
    [
        ("x = x[torch.randperm(192)]", True),
        ("x = x[torch.arange(192)[torch.randperm(192)].sort().values]", False),  # which the labels still fit
        ("order = torch.randperm(192); x, y = x[order], y[order]", False),
    ],
)
def test_a_script_is_read_and_its_samples_are_asked(order, named, tmp_path):
    path = _written(tmp_path, SCRIPT.replace("ORDER", order))
    told = subprocess.run([sys.executable, "-m", "surefoot", "watch", path], capture_output=True, text=True)
    assert ("labels-of-other-samples" in told.stdout) == named, told.stdout + told.stderr
