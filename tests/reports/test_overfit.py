"""The texts of overfit, from made-up records."""

from surefoot.costs.overfit_verdict import judge
from surefoot.records.overfit import Attempt, Overfit, Wiring
from surefoot.reports.console import as_text
from surefoot.reports.overfit import overfit_text

KNOBS = {"layers": 4, "lr": 0.001}
OFF = {"schedule": "a warm-up would use up the steps", "dropout": "it hides another part of the batch at every step"}
SOUND = Wiring(36, (5.226, 5.226), (), ())


def overfit(attempts: tuple[Attempt, ...], wiring: Wiring = SOUND) -> str:
    found = judge(wiring, attempts, recipe="gpt")
    return as_text(overfit_text(Overfit("gpt", KNOBS, 4, 200, 0.0523, OFF, wiring, attempts, found)))


def test_overfit(golden):
    learned = Attempt(1e-3, (5.226, 2.41, 1.01, 0.0511), "learned")
    stuck = Attempt(1e-3, (5.226, 3.1, 3.05), "not learned")
    wild = Attempt(1e-2, (5.226, 900.0), "diverged")
    nothing = Attempt(1e-3, (), "not learned")
    detached = Wiring(36, (), ("token.weight", "blocks.0.attention.qkv.weight"), ())
    elsewhere = Wiring(36, (5.226, 5.226), (), tuple(f"blocks.{index}.mlp.0.weight" for index in range(6)))
    cases = [
        overfit((learned,)),
        overfit((stuck, wild)),
        overfit((nothing,), detached),
        overfit((stuck,), elsewhere),
        overfit((stuck,), Wiring(36, (5.226, 5.4), (), ())),
    ]
    golden("overfit.txt", "\n".join(cases))
