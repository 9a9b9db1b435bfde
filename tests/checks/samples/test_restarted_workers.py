"""restarted-workers: the buggy and the fixed program."""

from torch.utils.data import DataLoader

import surefoot
from tests.checks.programs import mlp, sgd, twin
from tests.checks.saved_state.programs import DATA, update


@twin("restarted-workers")
def _(buggy):
    loader = DataLoader(DATA, 24, shuffle=True, num_workers=1, persistent_workers=not buggy)
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            for x, y in loader:
                update(model, optimizer, x, y)
        return seen.findings
