"""missing-update: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch.nn.functional as F

import surefoot
from surefoot.watch import watch_script
from tests.checks.programs import X, Y, mlp, named, sgd, twin

pytestmark = pytest.mark.sweep


@twin("missing-update")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            if not buggy:
                optimizer.step()
    return seen.findings


@pytest.mark.parametrize("stepped", [True, False])
def test_an_optimizer_of_its_own_for_a_part_that_is_never_stepped(tmp_path, stepped):
    script = tmp_path / "parts.py"
    script.write_text(
        "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
        "torch.manual_seed(0)\nx, y = torch.randint(0, 20, (16,)), torch.randint(0, 3, (16,))\n"
        "model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 3))\n"
        "rare, often = torch.optim.SGD(model[0].parameters(), 0.1), torch.optim.SGD(model[1].parameters(), 0.1)\n"
        "for _ in range(6):\n    model.zero_grad()\n    F.cross_entropy(model(x), y).backward()\n    often.step()\n"
        + "    rare.step()\n"
        * stepped
    )
    assert named(watch_script(str(script)).findings) == ([] if stepped else ["missing-update"])
