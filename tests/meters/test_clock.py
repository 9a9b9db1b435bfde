"""The clock, read from a clock that the test turns."""

import torch
from torch import nn

from surefoot.events.phases import Phases
from surefoot.meters.clock import ClockMeter
from surefoot.records.tally import Tally


def test_every_second_is_booked_once_and_under_its_phase():
    moment = 0.0

    def tick(seconds: float) -> None:
        nonlocal moment
        moment += seconds

    class Slow(nn.Linear):
        def forward(self, x):
            tick(5)
            return super().forward(x)

    model = Slow(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Phases(model) as phases:
        clock = ClockMeter(phases, now=lambda: moment)
        phases.listeners.append(clock)
        for _ in range(2):
            tick(1)
            loss = model(torch.ones(1, 2)).sum()
            tick(2)
            loss.backward()
            tick(3)
            optimizer.step()
            tick(1)
        booked = Tally.of(clock.accounts())
    assert {account.name: account.amount for account in booked.accounts} == {
        "seconds/load": 2 * 1 + 2 * 1,
        "seconds/forward": 2 * 5,
        "seconds/loss": 2 * 2,
        "seconds/backward": 0,
        "seconds/update": 2 * 3,
    }
    assert booked.total("seconds") == moment
    assert Tally.of(clock.accounts()).total("seconds") == 0
