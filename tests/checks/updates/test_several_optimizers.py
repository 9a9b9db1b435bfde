"""Several optimizers in stages or turns: each is judged by what is its own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from surefoot.watch import watch_script
from tests.checks.programs import X, Y, looped, mlp, named, numbers, sgd

pytestmark = pytest.mark.sweep

STAGES = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
X, Y = torch.randn(24, 4), torch.randint(0, 2, (24,))
body, head = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 2)
first = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
for _ in range(4):
    first.zero_grad()
    F.cross_entropy(head(body(X)), Y).backward()
    first.step()
model = nn.Sequential(body, nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
body.requires_grad_(False)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
for step in range(12):
    if step == 6:
        body.requires_grad_(True)
        optimizer.add_param_group({"params": list(body.parameters())})
    loss = F.cross_entropy(model(X), Y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def in_stages(tmp_path, **replaced) -> list[str]:
    """What is found in a script that trains a part first, with lines of it replaced."""
    source = STAGES
    for line, by in replaced.values():
        assert source.count(line) == 1
        source = source.replace(line, by)
    script = tmp_path / "stages.py"
    script.write_text(source)
    return named(watch_script(str(script)).findings)


def test_a_stage_that_trained_before_does_not_hide_what_a_later_one_lacks(tmp_path):
    assert in_stages(tmp_path) == []
    assert in_stages(tmp_path, no_step=("    optimizer.step()\n", "")) == ["missing-update"]
    rebuilt = (
        "    loss.backward()\n",
        "    loss = torch.tensor(loss.item(), requires_grad=True)\n    loss.backward()\n",
    )
    assert in_stages(tmp_path, rebuilt=rebuilt) == ["detached-loss"]
    frozen = "optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)\n"
    wrongly = frozen + "for name, p in model.named_parameters():\n    p.requires_grad = name.startswith('0')\n"
    assert in_stages(tmp_path, frozen=(frozen, wrongly)) == ["only-frozen-parameters-in-optimizer"]


def taking_turns(*, clip=None, rebuild=False, late=False) -> list[str]:
    """An actor and a critic, each with an optimizer; `clip` says whose gradients the second clipping limits."""
    actor, critic, worth = mlp(), mlp(classes=1), numbers(8, seed=3)
    optimizers = sgd(actor), sgd(critic)

    def step(*_):
        loss = F.mse_loss(critic(X)[:, 0], worth)
        optimizers[1].zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        optimizers[1].step()
        loss = F.cross_entropy(actor(X), Y)
        if rebuild:
            loss = torch.tensor(loss.item(), requires_grad=True)
        optimizers[0].zero_grad()
        loss.backward()
        if not late:
            nn.utils.clip_grad_norm_({"critic": critic}.get(clip, actor).parameters(), 1.0)
        optimizers[0].step()
        if late:
            nn.utils.clip_grad_norm_(actor.parameters(), 1.0)

    return looped(step, model=actor, optimizer=optimizers[0])


def test_one_of_two_that_take_turns_is_judged_by_what_is_its_own():
    assert taking_turns() == []
    assert taking_turns(clip="critic") == ["clipping-without-effect"]
    assert taking_turns(late=True) == ["clipping-without-effect"]
    assert taking_turns(rebuild=True) == ["detached-loss"]
