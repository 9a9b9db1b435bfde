"""data-position-lost-on-resume: the buggy and the fixed program, variants, and what looks like it and is fine."""

import itertools
import runpy

import pytest
from torch.utils.data import DataLoader

import surefoot
from tests.checks.programs import mlp, sgd, twin
from tests.checks.saved_state.programs import DATA, kept, put_back, update

pytestmark = pytest.mark.sweep


@twin("data-position-lost-on-resume")
def _(buggy):
    loader = DataLoader(DATA, 8)
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for step, (x, y) in enumerate(itertools.islice(loader, 4), 1):
            update(model, optimizer, x, y)
            file = kept(model, optimizer, step=step)
        state = put_back(file, model, optimizer)
        for x, y in itertools.islice(loader, 0 if buggy else state["step"] % len(loader), None):
            update(model, optimizer, x, y)
        return seen.findings


BY_NAME = {"SAVED": '"dice": torch.get_rng_state()', "ORDER": "torch.arange(48).split(16)"}
DICE, PLACES = 'torch.set_rng_state(state["dice"])', 'places.set_state(state["places"])'
FROM_A_FUNCTION = 'def restored():\n    return torch.load("run.pt", weights_only=False)\n'
PYTHONS = {"SAVED": '"dice": random.getstate()', "RATE": "0.0", "ORDER": "torch.tensor(SHUFFLED()).split(16)"}
SHUFFLED = "def SHUFFLED():\n    return random.sample(range(48), 48)\n"
SCRIPT = """
import random
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

X = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
HELPERS

def run(resume):
    torch.manual_seed(1)
    places = torch.Generator().manual_seed(2)
    X[torch.randperm(48, generator=places)[:40]]
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(RATE), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    if resume:
        state = torch.load("run.pt", weights_only=False)
        model.load_state_dict(state["model"])
        MOMENTS
        RESTORE
    for epoch in range(2):
        BEGIN
        for rows in ORDER:
            optimizer.zero_grad()
            F.cross_entropy(model(X[rows]), Y[rows]).backward()
            optimizer.step()
        EPOCH
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), SAVED}
    torch.save(state, "run.pt")

run(False)
run(AGAIN)
"""


USUAL = {
    "HELPERS": "",
    "RATE": "0.1",
    "RESTORE": "pass",
    "ORDER": "torch.randperm(48, generator=places).split(16)",
    "MOMENTS": 'optimizer.load_state_dict(state["optimizer"])',
    "AGAIN": "True",
    "BEGIN": "pass",
    "EPOCH": "pass",
    "SAVED": '"dice": torch.get_rng_state(), "places": places.get_state()',
}


def told(folder, monkeypatch, **changes) -> list[str]:
    monkeypatch.chdir(folder)
    text = SCRIPT
    for word, new in (USUAL | changes).items():
        text = text.replace(word, new)
    (folder / "script.py").write_text(text)
    with surefoot.watch() as seen:
        runpy.run_path(str(folder / "script.py"))
    found = [each for each in seen.findings.findings if each.check == "data-position-lost-on-resume"]
    assert all(each.severity == "warning" for each in found)
    return [key for key in ("dice", "places") for each in found if f"as {key!r}" in each.seen]


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({}, ["dice", "places"]),
        ({"RESTORE": PLACES}, ["dice"]),
        ({"RESTORE": DICE}, ["places"]),
        ({"RESTORE": 'for name in ("model", "optimizer"):\n            len(state[name])'}, ["dice", "places"]),
        (
            {"HELPERS": FROM_A_FUNCTION, "RESTORE": 'state = restored()\n        len(state["model"])'},
            ["dice", "places"],
        ),
        (BY_NAME | {"RATE": "0.0", "ORDER": "DataLoader(range(48), 16, shuffle=True)"}, ["dice"]),
        (PYTHONS | {"HELPERS": SHUFFLED}, ["dice"]),
    ],
)
def test_a_state_that_is_not_put_back_is_lost(tmp_path, monkeypatch, changes, lost):
    assert told(tmp_path, monkeypatch, **changes) == lost


HANDED_ON = "def restore(state):\n    for name, each in state.items():\n        print(name)\n"
IN_A_LIST = {"SAVED": '"dice": [torch.get_rng_state()]', "RESTORE": 'torch.set_rng_state(state["dice"][0])'}
TO_THE_BEST = """
        torch.save({"optimizer": optimizer.state_dict(), SAVED}, "run.pt")
        kept = torch.load("run.pt")
        optimizer.load_state_dict(kept["optimizer"])
"""


@pytest.mark.parametrize(
    "changes",
    [
        {"RESTORE": f"{DICE}\n        {PLACES}"},
        {"RESTORE": PLACES, "RATE": "0.0"},
        BY_NAME | {"RATE": "0.0", "ORDER": "DataLoader(range(48), 16)"},
        {"RESTORE": DICE, "ORDER": "torch.arange(48).split(16)"},
        BY_NAME | IN_A_LIST,
        {"HELPERS": HANDED_ON, "RESTORE": "restore(state)"},
        BY_NAME | {"BEGIN": "torch.manual_seed(7 + epoch)"},
        PYTHONS | {"HELPERS": SHUFFLED, "BEGIN": "random.seed(epoch)"},
        {"RESTORE": f"{PLACES}\n        state.pop('dice')"},
        {"MOMENTS": "pass"},
        {"EPOCH": TO_THE_BEST, "AGAIN": "False"},
    ],
)
def test_a_state_that_is_put_back_or_that_nothing_needs_is_not_lost(tmp_path, monkeypatch, changes):
    assert told(tmp_path, monkeypatch, **changes) == []
