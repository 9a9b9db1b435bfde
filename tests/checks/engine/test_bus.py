"""Observers hear what they define a method for, in an order that they declare; the hub keeps no list of them."""

from pathlib import Path

import pytest
import torch
from torch import nn

import surefoot
from surefoot.checks import watcher
from surefoot.checks.engine.assembly import declared, in_order, made, observers_in
from surefoot.checks.engine.bus import Bus
from surefoot.checks.engine.observer import EVENTS, Observer, hears
from surefoot.checks.engine.scene import Scene
from surefoot.events.listener import Listener
from surefoot.events.phases import Phases


class First(Observer):
    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.heard: list[str] = []

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        self.heard.append("update_begins")

    def graph_seen(self, graph: object) -> None:
        self.heard.append("graph_seen")


class Second(Observer):
    after = (First,)
    stays = True

    def __init__(self, scene: Scene, first: First) -> None:
        super().__init__(scene)
        self.first = first

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        self.first.heard.append("after it")


class Another(Observer):
    before = (First,)

    def __init__(self, scene: Scene, first: First) -> None:
        super().__init__(scene)
        self.first = first

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        self.first.heard.append("before it")


@pytest.fixture
def scene() -> Scene:
    return Scene(Phases())


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)


def test_an_observer_hears_what_it_defines_in_the_declared_order(scene: Scene):
    kinds = in_order([Second, First, Another])
    assert kinds == [Another, First, Second]
    observers = made(kinds, scene)
    bus = Bus(scene, observers.values())
    bus.update_begins(optimizer())
    bus.gradient_asked(torch.ones(1, requires_grad=True).sum())
    bus.update_ends(optimizer())
    assert observers[First].heard == ["before it", "update_begins", "after it", "graph_seen"]
    assert (scene.updates, scene.backwards) == (1, 1)


def test_while_it_rests_only_those_that_stay_hear_events(scene: Scene):
    observers = made(in_order([Second, First, Another]), scene)
    bus = Bus(scene, observers.values())
    bus.resting = True
    bus.update_begins(optimizer())
    assert observers[First].heard == ["after it"]


def test_observers_are_made_once_and_given_to_each_other(scene: Scene):
    observers = made([Another, First, Second], scene)
    assert observers[Second].first is observers[Another].first is observers[First]


def test_orders_that_cannot_hold_are_refused():
    class Circle(Observer):
        before = (First,)
        after = (Second,)

    with pytest.raises(ValueError, match="cycle"):
        in_order([First, Second, Circle])


def test_every_observer_is_found_and_defines_an_event_or_is_asked_for_facts():
    kinds = observers_in("surefoot.checks")
    assert len(kinds) >= 48
    assert len({kind.__module__.split(".")[2] for kind in kinds}) >= 10
    assert all(kind.__doc__ for kind in kinds)
    assert {"called", "graph_seen", "update_ends", "model_returned"} <= EVENTS
    for event in EVENTS - {"entered", "forward_begins", "forward_ends", "fetch_begins", "batch_fetched", "rng_saved"}:
        assert event == "resized" or any(hears(kind, event) for kind in kinds), f"nobody hears of {event}"


def test_the_bus_passes_on_every_event_of_phases_that_an_observer_defines():
    kinds = observers_in("surefoot.checks")
    for event in (name for name in vars(Listener) if not name.startswith("_")):
        if any(hears(kind, event) for kind in kinds):
            assert event in vars(Bus), f"the bus does not pass on {event}"


def test_the_hub_is_short_and_names_no_observer():
    source = Path(watcher.__file__).read_text(encoding="utf-8")
    assert len(source.splitlines()) < 100
    names = [kind.__name__ for kind in observers_in("surefoot.checks")]
    assert not [name for name in names if f"{name}(" in source]


@pytest.mark.parametrize("backwards", [False, True])
def test_an_order_that_is_not_declared_does_not_matter(backwards: bool, monkeypatch: pytest.MonkeyPatch):
    """The observers of one rank of the order may change places."""
    kinds = observers_in("surefoot.checks")
    monkeypatch.setattr(watcher, "_observers", lambda _: _turned(kinds) if backwards else kinds)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.tensor([0, 1] * 4)
    with surefoot.watch(model, own) as seen:
        for _ in range(4):
            nn.functional.cross_entropy(model(x).softmax(-1), y).backward()
            own.step()
        found = {each.check for each in seen.findings.findings}
    assert found == {"softmax-before-cross-entropy", "missing-zero-grad"}


def _turned(kinds: list[type[Observer]]) -> list[type[Observer]]:
    """Another order in which all that is declared holds: the last of those that may come next comes next."""
    earlier = declared(kinds)
    turned: list[type[Observer]] = []
    while len(turned) < len(kinds):
        turned.append(next(kind for kind in reversed(kinds) if kind not in turned and earlier[kind] <= set(turned)))
    return turned
