"""evaluation-samples-in-training: the buggy and the fixed program, variants, and what looks like it and is fine."""

import random
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, SubsetRandomSampler, TensorDataset

import surefoot
from surefoot.checks.samples.stored_samples import shared_rows
from surefoot.checks.samples.windows import _ends_vary
from surefoot.watch import watch_script
from tests.checks.loaders import COUNT, INPUTS, KINDS, LABELS, TOLD, by_permutation, stepped, trained
from tests.checks.programs import mlp, named, numbers, sgd, twin, whole
from tests.checks.samples.programs import classified, told

pytestmark = pytest.mark.sweep


@twin("evaluation-samples-in-training")
def _(buggy):
    data = TensorDataset(INPUTS, LABELS)
    valid = Subset(data, range(28 if buggy else 32, COUNT))
    return trained(DataLoader(Subset(data, range(32)), 8, shuffle=True), evaluation=DataLoader(valid, 8))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(slice(96, 144), ["evaluation-samples-in-training"]), (slice(128, 192), []), (slice(0, 128), [])],
    ids=["overlapping", "held out", "the training set"],
)
def test_samples_of_a_loop_without_loaders_that_are_evaluated(rows, expected):
    def evaluate(model):
        model.eval()
        with torch.no_grad():
            model(TOLD[rows])
        model.train()

    assert stepped(by_permutation, evaluate=evaluate) == expected


class Numbers(IterableDataset):
    def __init__(self, first, last):
        self.rows = range(first, last)

    def __iter__(self):
        return ((TOLD[row], KINDS[row]) for row in self.rows)


@pytest.mark.parametrize(("first", "expected"), [(100, ["evaluation-samples-in-training"]), (128, [])])
def test_samples_of_two_streams(first, expected):
    loaders = DataLoader(Numbers(0, 128), 16), DataLoader(Numbers(first, 192), 16)
    assert named(trained(loaders[0], evaluation=loaders[1], model=mlp(inputs=6, classes=3), passes=1)) == expected


@pytest.mark.parametrize("on_purpose", [True, False])
def test_a_part_of_the_training_set_may_be_measured(on_purpose):
    data = TensorDataset(numbers(64, 4), whole(2, 64))
    training, held = Subset(data, range(48)), DataLoader(Subset(data, range(48, 64)), 8)
    names = {"train_part" if on_purpose else "validation": DataLoader(Subset(training, range(16)), 8)}

    def evaluate(model):
        for loader in (*names.values(), held):
            for x, _ in loader:
                model(x)

    found = told(DataLoader(training, 8, shuffle=True), classified, evaluate=evaluate, names=names)
    assert ("evaluation-samples-in-training" in found) is not on_purpose


@pytest.mark.parametrize("leaked", [False, True])
def test_texts_of_a_few_words_repeat_in_training_as_they_do_between_it_and_the_test(leaked):
    drawn = random.Random(0)

    def text():
        words = [drawn.randrange(1, 12) for _ in range(drawn.choice((1, 6, 6, 6)))]
        return torch.tensor([0, *words, *[0] * (6 - len(words))])

    texts = torch.stack([text() for _ in range(160)])
    model = nn.Sequential(nn.Embedding(12, 4), nn.Flatten(), nn.Linear(28, 2))
    held = TensorDataset(torch.cat([texts[:8], texts[128:]]) if leaked else texts[128:])

    def step(model, batch):
        return F.cross_entropy(model(batch[0]), (batch[0].sum(1) % 2))

    def evaluate(model):
        for (x,) in DataLoader(held, 8):
            model(x)

    loader = DataLoader(TensorDataset(texts[:128]), 8, shuffle=True)
    assert ("evaluation-samples-in-training" in told(loader, step, model=model, evaluate=evaluate)) is leaked


@pytest.mark.parametrize("before_the_split", [True, False])
def test_rare_samples_may_be_repeated_when_they_are_split(before_the_split):
    x, order = numbers(120, 4), torch.randperm(120, generator=torch.Generator().manual_seed(0))
    rare = torch.cat([torch.arange(120), torch.arange(100, 120).repeat(4)])

    def repeated(part):
        return part[torch.cat([torch.arange(len(part)), torch.arange(len(part) - 10, len(part)).repeat(3)])]

    if before_the_split:
        both = x[rare][torch.randperm(len(rare), generator=torch.Generator().manual_seed(1))]
        train, test = both[:150], both[150:]
    else:
        train, test = repeated(x[order][:90]), repeated(x[order][90:])
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            for rows in torch.randperm(len(train)).split(16):
                optimizer.zero_grad()
                F.cross_entropy(model(train[rows]), (train[rows, 0] > 0).long()).backward()
                optimizer.step()
            with torch.no_grad():
                for part in test.split(16):
                    model(part)
    assert named(seen.findings) == (["evaluation-samples-in-training"] if before_the_split else [])


@pytest.mark.parametrize(("size", "expected"), [(1.0, []), (0.37, ["evaluation-samples-in-training"])])
def test_rows_of_whole_numbers_may_come_twice(size, expected):
    rows = (numbers(160, 20) > 0).float() * size
    train, test = rows[:128], torch.cat([rows[:4], rows[128:]])
    model = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 20))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for batch in train.split(16):
            optimizer.zero_grad()
            F.mse_loss(model(batch), batch).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(test)
    assert named(seen.findings) == expected


def test_what_one_fold_evaluates_another_may_train_on():
    rows = TensorDataset(numbers(48, 4), torch.arange(48) % 2)
    folds = [list(range(n, 48, 3)) for n in range(3)]

    def fit(chosen, kept):
        model = mlp()
        optimizer = sgd(model)
        for x, y in DataLoader(Subset(rows, chosen), 8, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, _ in DataLoader(Subset(rows, kept), 8):
                model.eval()(x)

    def folded(leak):
        with surefoot.watch() as seen:
            for n, kept in enumerate(folds):
                fit([i for m, fold in enumerate(folds) if m != n for i in fold] + kept[:leak], kept)
        return named(seen.findings)

    assert folded(0) == []
    assert folded(8) == ["evaluation-samples-in-training"]


def test_empty_rows_are_no_samples_that_come_again():
    rows = numbers(512, 20)
    rows[::16] = 0.0
    model = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 20))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for batch in rows[:256].split(16):
            optimizer.zero_grad()
            F.mse_loss(model(batch), batch).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for batch in rows[256:].split(32):
                model(batch)
    assert "evaluation-samples-in-training" not in named(seen.findings)


def parts(first: int, last: int, size: int = 20) -> list[slice]:
    return [slice(at, min(at + size, last)) for at in range(first, last, size)]


ROWS = 160
DRAWN = np.random.default_rng(0)
X = DRAWN.normal(size=(260, 6)).astype("float32")
Y = (X[:, 0] > X[:, 1]).astype("int64")


def told_of_parts(evaluated, *, epochs: int = 4, batch: int = 16, rows: int = ROWS, ordered: bool = False) -> bool:
    """`evaluated` gives the rows that an evaluation takes, part by part."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    order = np.random.default_rng(1)
    with surefoot.watch() as seen:
        for _ in range(epochs):
            model.train()
            chosen = np.arange(rows) if ordered else order.permutation(rows)
            for start in range(0, rows, batch):
                at = chosen[start : start + batch]
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(torch.from_numpy(X[at])), torch.from_numpy(Y[at])).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                for part in evaluated():
                    model(torch.from_numpy(X[part]))
    return "evaluation-samples-in-training" in {each.check for each in seen.findings.findings}


@pytest.mark.parametrize(("first", "last"), [(150, 260), (130, 260), (110, 240)])
def test_a_held_out_part_that_begins_in_the_training_part(first, last):
    assert told_of_parts(lambda: parts(first, last))
    assert told_of_parts(lambda: list(reversed(parts(first, last))))


def test_held_out_rows_beside_rows_of_training_that_are_measured_on_purpose():
    assert not told_of_parts(lambda: parts(ROWS, 260))
    assert not told_of_parts(lambda: [*parts(0, 50), *parts(ROWS, 260)])
    assert not told_of_parts(lambda: [*parts(ROWS, 260), *parts(0, 70, 32)])
    assert not told_of_parts(lambda: [*parts(0, ROWS, 48), *parts(ROWS, 260, 48)])


def test_rows_of_training_that_are_drawn_for_a_measurement():
    def drawn():
        of_training = [DRAWN.integers(0, ROWS + 30, 20) for _ in range(2)]
        return [*(np.minimum(each, ROWS - 1) for each in of_training), *parts(ROWS, 260)]

    assert not told_of_parts(drawn)


def test_a_training_part_that_has_not_been_read_to_its_end():
    assert not told_of_parts(lambda: [*parts(0, 120), *parts(200, 260)], epochs=3, batch=4, rows=120, ordered=True)


STORED, HELD = 160, 48


class Rows(Dataset):
    def __init__(self, features, labels, noise: float = 0.0):
        self.features, self.labels, self.noise = features, labels, noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        x = torch.as_tensor(self.features[index])
        return x + self.noise * torch.randn(x.shape) if self.noise else x, self.labels[index]


def data(array=torch.as_tensor):
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(STORED, 8)).astype("float32")
    return array(x), torch.as_tensor((x[:, 0] > x[:, 1]).astype("int64"))


def names(training: Dataset, evaluation: Dataset) -> set[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    train_loader, test_loader = DataLoader(training, 16, shuffle=True), DataLoader(evaluation, 16)
    with surefoot.watch() as seen:
        for _ in range(2):
            model.train()
            for x, y in train_loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                right = sum(int((model(x).argmax(1) == y).sum()) for x, y in test_loader)
            assert right
    return {each.check for each in seen.findings.findings}


@pytest.mark.parametrize("array", [torch.as_tensor, np.asarray, list])
def test_two_draws_of_one_table_share_rows_though_noise_is_added(array):
    x, y = data(array)
    first, second = torch.randperm(STORED).tolist(), torch.randperm(STORED).tolist()

    def rows(order, **more):
        return Rows(array([x[n] for n in order]) if array is list else x[order], y[order], **more)

    found = names(rows(first[HELD:], noise=0.1), rows(second[:HELD]))
    assert "evaluation-samples-in-training" in found


@pytest.mark.parametrize("array", [torch.as_tensor, np.asarray])
def test_two_parts_of_one_table_share_none(array):
    x, y = data(array)
    order = torch.randperm(STORED).tolist()
    held, rest = order[:HELD], order[HELD:]
    assert "evaluation-samples-in-training" not in names(Rows(x[rest], y[rest], noise=0.1), Rows(x[held], y[held]))


def test_nor_do_two_parts_of_data_sets_that_keep_all_of_it():
    x, y = data()
    noisy, plain = Rows(x, y, noise=0.1), Rows(x, y)
    order = torch.randperm(STORED).tolist()
    held, rest = order[:HELD], order[HELD:]
    assert "evaluation-samples-in-training" not in names(Subset(noisy, rest), Subset(plain, held))
    assert "evaluation-samples-in-training" in names(
        Subset(noisy, rest), Subset(plain, order[HELD - 24 : 2 * HELD - 24])
    )


def test_rows_of_classes_alone_tell_no_sample():
    x, y = data()
    kept = torch.nn.functional.one_hot(torch.arange(STORED) % 4, 4).float()
    one, other = Rows(x[HELD:], y[HELD:], noise=0.1), Rows(x[:HELD], y[:HELD])
    one.groups, other.groups = kept[HELD:], kept[:HELD]
    assert "evaluation-samples-in-training" not in names(one, other)


def evaluated_on(*parts: TensorDataset, data: TensorDataset) -> list[str]:
    loaders = [DataLoader(part, 8) for part in parts]

    class OneByOne:
        def __iter__(self):
            return (batch for validation in loaders for batch in validation)

    return named(trained(DataLoader(data, 8, shuffle=True), evaluation=OneByOne()))


def test_a_second_loader_of_all_training_samples_is_no_evaluation():
    data = TensorDataset(INPUTS[:32], LABELS[:32])
    again, unseen = TensorDataset(INPUTS[:32], LABELS[:32]), TensorDataset(INPUTS[32:], LABELS[32:])
    assert evaluated_on(again, data=data) == ["evaluation-samples-in-training"]
    assert evaluated_on(data, data=data) == ["evaluation-samples-in-training"]
    assert evaluated_on(again, unseen, data=data) == []


class Crops(Dataset):
    """Pairs of an image and its map: cut at random in training, in the middle in evaluation."""

    def __init__(self, pairs, *, training):
        self.pairs, self.training = pairs, training

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, place):
        image, mask = self.pairs[place]
        top, left = torch.randint(0, 5, (2,)).tolist() if self.training else (2, 2)
        return image[:, top : top + 8, left : left + 8], mask[:, top : top + 8, left : left + 8]


IMAGES = numbers(64, 1, 12, 12)
PAIRS = list(zip(IMAGES, (IMAGES > 0).float(), strict=True))


def segmented(train, held):
    model = nn.Conv2d(1, 1, 3, padding=1)

    def step(model, batch):
        return F.binary_cross_entropy_with_logits(model(batch[0]), batch[1])

    def evaluate(model):
        for image, _ in DataLoader(held, 8):
            model(image)

    return "evaluation-samples-in-training" in told(
        DataLoader(train, 8, shuffle=True), step, model=model, evaluate=evaluate
    )


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("leaks", [True, False])
def test_pairs_that_are_cut_at_random_are_known_by_what_is_stored(wrapped, leaks):
    places = range(48), range(44 if leaks else 48, 64)
    base = TensorDataset(*(torch.stack(each) for each in zip(*PAIRS, strict=True)))
    stored = [Subset(base, each) if wrapped else PAIRS[each.start : each.stop] for each in places]
    train, held = (Crops(each, training=n == 0) for n, each in enumerate(stored))
    assert segmented(train, held) is leaks


@pytest.mark.parametrize("before_the_split", [True, False])
def test_copies_that_were_flipped_before_the_split_are_the_same_samples(before_the_split):
    def flipped(pairs):
        return [each for a, b in pairs for each in ((a, b), (a.flip(-1), b.flip(-1)))]

    order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).tolist()
    if before_the_split:
        pairs = flipped(PAIRS)
        mixed = torch.randperm(128, generator=torch.Generator().manual_seed(0)).tolist()
        train, held = Subset(pairs, mixed[:96]), Subset(pairs, mixed[96:])
    else:
        train, held = (flipped([PAIRS[place] for place in some]) for some in (order[:48], order[48:]))
    assert segmented(train, held) is before_the_split


LIBRARY = """
import torch

class Trainer:
    def __init__(self, model, train_data, {name}):
        self.model, self.train_data, self.second = model, train_data, {name}

    def train(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        for _ in range(3):
            for x, y in torch.utils.data.DataLoader(self.train_data, 8, shuffle=True):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(self.model(x), y).backward()
                optimizer.step()
            self.{function}()

    def {function}(self):
        with torch.no_grad():
            for x, y in torch.utils.data.DataLoader(self.second, 8):
                self.model(x)
"""
SCRIPT = """
import torch
from torch.utils.data import TensorDataset
import somebodys

torch.manual_seed(0)
x = torch.randn(64, 6)
data = TensorDataset(x, (x[:, 0] > 0).long())
somebodys.Trainer(torch.nn.Linear(6, 2), data, data).train()
"""


@pytest.mark.parametrize(("function", "name", "found"), [("evaluation_loop", "eval_data", True), ("embed", "d", False)])
def test_a_library_that_evaluates_the_training_set(function, name, found, tmp_path, monkeypatch):
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "somebodys.py").write_text(LIBRARY.format(function=function, name=name))
    monkeypatch.syspath_prepend(str(library))
    monkeypatch.delitem(sys.modules, "somebodys", raising=False)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    named = [each.check for each in watch_script(str(script)).findings.findings]
    assert ("evaluation-samples-in-training" in named) is found


LENGTH = 12


def forecast(train, test, *, features=1, passes=2):
    """What is found where windows of a series that begin at these places are trained on and evaluated."""
    series = numbers(240, max(1, features), seed=4).cumsum(0) / 20
    windows = series.unfold(0, LENGTH, 1).transpose(1, 2)
    x, y = (windows if features else windows[..., 0]), series[LENGTH:, :1]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(LENGTH * max(1, features), 8), nn.ReLU(), nn.Linear(8, 1))
    loaders = [DataLoader(TensorDataset(x[part], y[part]), 16, shuffle=n == 0) for n, part in enumerate((train, test))]
    return named(trained(loaders[0], evaluation=loaders[1], model=model, loss=F.mse_loss, passes=passes))


PLACES = torch.randperm(228, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("features", [0, 1, 3])
@pytest.mark.parametrize("by_time", [True, False])
def test_windows_that_end_inside_training_windows(features, by_time):
    parts = (torch.arange(170), torch.arange(170, 228)) if by_time else (PLACES[:170], PLACES[170:])
    assert forecast(*parts, features=features) == ([] if by_time else ["evaluation-samples-in-training"])


@pytest.mark.sweep
def test_a_few_windows_right_after_the_split():
    assert forecast(torch.arange(200), torch.arange(200, 228)) == []


@pytest.mark.sweep
def test_a_series_that_repeats_itself_is_not_judged():
    series = torch.tensor([0.1, 0.7, 0.3, 0.9]).repeat(60)
    x, y = series.unfold(0, LENGTH, 1)[:-1], series[LENGTH:, None]
    loaders = DataLoader(TensorDataset(x[:170], y[:170]), 16), DataLoader(TensorDataset(x[170:], y[170:]), 16)
    model = nn.Sequential(nn.Linear(LENGTH, 8), nn.ReLU(), nn.Linear(8, 1))
    found = trained(loaders[0], evaluation=loaders[1], model=model, loss=F.mse_loss)
    assert not any("windows" in each.seen for each in found.findings)


def test_states_of_a_game_come_again_by_chance():
    states, draw = numbers(3000, 6), torch.Generator().manual_seed(0)
    model = mlp(inputs=6)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(12):
            turns = states[torch.randint(0, len(states), (24, 16), generator=draw)]
            with torch.no_grad():
                for turn in turns:
                    model(turn)
            batch = turns.flatten(0, 1)
            optimizer.zero_grad()
            F.cross_entropy(model(batch), (batch[:, 0] > 0).long()).backward()
            optimizer.step()
    assert named(seen.findings) == []


@pytest.mark.parametrize("part", [range(40, 48), range(28, 36)])
def test_a_sampler_over_some_indices_reads_these_alone(part):
    data = TensorDataset(INPUTS, LABELS)
    loader = DataLoader(data, 8, sampler=SubsetRandomSampler(range(32)))
    held = TensorDataset(INPUTS[list(part)], LABELS[list(part)])
    found = named(trained(loader, evaluation=DataLoader(held, 8)))
    assert ("evaluation-samples-in-training" in found) == (part.start < 32)


def test_flags_at_the_end_of_a_row_are_no_window():
    x = torch.cat([numbers(80, 20), F.one_hot(whole(4, 80), 4).float()], 1)
    assert _ends_vary(x[:, :20])
    assert not _ends_vary(x)
    assert not _ends_vary(x[:, :, None])


def test_a_map_of_few_values_names_no_sample():
    class Stored(Dataset):
        def __init__(self, seed, maps):
            self.inputs, self.maps = numbers(20, 6, seed=seed), maps

        def __len__(self):
            return 20

    squares = torch.eye(20).repeat_interleave(4, 1)
    assert shared_rows(Stored(0, squares), Stored(1, squares)) == 0.0
    assert shared_rows(Stored(0, squares), Stored(0, squares)) == 1.0
