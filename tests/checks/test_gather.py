"""Facts are gathered in an order: observers settle, all hand over what they saw, then copies are disturbed."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from surefoot.checks.engine.assembly import Observers
from surefoot.checks.engine.bus import Bus
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.facts.losses import LossFacts, Term
from surefoot.checks.facts.updates import UpdateFacts
from surefoot.checks.gather import gathered
from surefoot.events.phases import Phases

ASKED: list[str] = []


class First(Observer):
    def settle(self) -> None:
        ASKED.append(f"first settles, {len(self.scene.optimizers)} optimizers")

    def facts(self) -> Iterator[LossFacts]:
        ASKED.append("first sees")
        yield LossFacts(terms=(Term("first", 1.0),))

    def probed(self) -> Iterator[LossFacts | UpdateFacts]:
        ASKED.append("first probes")
        yield LossFacts(terms=(Term("probe", 1.0),))
        yield UpdateFacts(carried_by_hand=3)


class Second(Observer):
    def __init__(self, scene: Scene, first: First) -> None:
        super().__init__(scene)

    def settle(self) -> None:
        ASKED.append("second settles")

    def facts(self) -> Iterator[LossFacts]:
        ASKED.append("second sees")
        yield LossFacts(terms=(Term("second", 2.0),), flat_lines=("a.py:1",))


@pytest.mark.parametrize("probes", [True, False])
def test_all_settle_and_tell_what_they_saw_before_any_probe(probes: bool):
    ASKED.clear()
    model = nn.Linear(2, 1)
    unused = torch.optim.SGD(model.parameters(), lr=1.0)  # it never makes an update, and only probes look for it
    scene = Scene(Phases())
    scene.phases.find(model)
    observers = Observers([First, Second], scene)
    facts = gathered(scene, Bus(scene, observers), observers, probes=probes)
    settled = [f"first settles, {int(probes)} optimizers", "second settles"]
    assert [*settled, "first sees", "second sees", *["first probes"] * probes] == ASKED
    assert [each.where for each in facts[LossFacts].terms] == ["first", "second", *["probe"] * probes]
    assert facts[LossFacts].flat_lines == ("a.py:1",)
    assert facts[UpdateFacts].carried_by_hand == 3 * probes
    assert (unused in scene.optimizers) is probes
