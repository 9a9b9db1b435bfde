# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 6. Optimizers by hand, from SGD to AdamW
#
# This chapter writes six optimizers in a few lines each and compares them with torch's, bit for bit.
#
# At its end you will know:
#
# - what each optimizer remembers, and what for;
# - why Adam's first update has the size of the learning rate, whatever the gradient;
# - what the W in AdamW changes;
# - how many bytes each optimizer adds, from a count and from `surefoot.plan`;
# - how the learning rate depends on the batch size, and how to find a good rate.

# %%
import copy
import math
import subprocess
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import surefoot

torch.manual_seed(0)
torch.set_num_threads(1)

# %% [markdown]
# ## A place to compare
#
# Below, `trained` runs 30 updates of a small network. It takes either an optimizer of torch or a function of ours. Our
# functions change one weight `p`, given its gradient `g`, a dict `s` for what they remember, and the number `t` of the
# update, from 1 on. Two runs start from the same weights. At the end we compare every bit.

# %%
inputs = torch.randn(128, 10)
targets = torch.sin(inputs.sum(dim=1, keepdim=True))
network = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))


def trained(make: Callable | None = None, rule: Callable | None = None, steps: int = 30) -> Tensor:
    """All weights after a few updates, by an optimizer that `make` builds or by a rule of ours."""
    model = copy.deepcopy(network)
    optimizer = make(model.parameters()) if make else None
    states: list[dict] = [{} for _ in model.parameters()]
    for t in range(1, steps + 1):
        model.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        if optimizer:
            optimizer.step()
        else:
            with torch.no_grad():
                for p, s in zip(model.parameters(), states, strict=True):
                    rule(p, p.grad, s, t)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def compare(name: str, make: Callable, rule: Callable) -> None:
    """Prints how far our weights are from torch's."""
    theirs, ours = trained(make=make), trained(rule=rule)
    print(f"{name:22} bit for bit: {torch.equal(ours, theirs)}, largest difference {(ours - theirs).abs().max():.0e}")


# %% [markdown]
# ## SGD
#
# Take a step against the gradient. The learning rate says how far. SGD remembers nothing.


# %%
def sgd(p: Tensor, g: Tensor, s: dict, t: int, rate: float = 0.1) -> None:
    p.add_(g, alpha=-rate)


compare("SGD", lambda ps: torch.optim.SGD(ps, lr=0.1), sgd)

# %% [markdown]
# ## Momentum
#
# Add the new gradient to a fading memory of the old ones, and follow the memory. Noise cancels out. Steady directions
# add up. The idea is Polyak's, of 1964. Nesterov's form of 1983 is a variant of it.
#
# It is often called a running average. In torch it is a running *sum*: with a steady gradient of 1 and a momentum of
# 0.9 the memory goes to 1 / (1 - 0.9) = 10. So momentum 0.9 makes steps up to ten times as long. Lower the learning
# rate when you switch it on.


# %%
def momentum(p: Tensor, g: Tensor, s: dict, t: int, rate: float = 0.02, mu: float = 0.9) -> None:
    s["memory"] = g.clone() if t == 1 else s["memory"].mul_(mu).add_(g)
    p.add_(s["memory"], alpha=-rate)


compare("SGD with momentum", lambda ps: torch.optim.SGD(ps, lr=0.02, momentum=0.9), momentum)
memory, sizes = 0.0, []
for t in range(1, 61):
    memory = 0.9 * memory + 1.0
    if t in (1, 2, 10, 60):
        sizes.append(f"{memory:.2f} after {t}")
print("memory of a steady gradient of 1:", ", ".join(sizes))

# %% [markdown]
# ## Adagrad
#
# Some weights get large gradients, others tiny ones. One learning rate cannot suit both. Adagrad keeps the *sum* of all
# squared gradients of each weight and divides by its root. (You may read "average". It is a sum, so steps shrink for
# ever: after t equal gradients the step is rate / root of t.)
#
# This one we write as a real torch optimizer. A class needs two things: defaults for its groups, and `step`. The base
# class gives you `param_groups`, `zero_grad`, and `state`, a dict for each parameter. All of it goes into
# `state_dict()`.


# %%
class Adagrad(torch.optim.Optimizer):
    def __init__(self, params, lr: float = 0.01, eps: float = 1e-10) -> None:
        super().__init__(params, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                total = self.state[p].setdefault("sum", torch.zeros_like(p))
                total.addcmul_(p.grad, p.grad)
                p.addcdiv_(p.grad, total.sqrt().add_(group["eps"]), value=-group["lr"])


ours, theirs = trained(make=lambda ps: Adagrad(ps, lr=0.05)), trained(make=lambda ps: torch.optim.Adagrad(ps, lr=0.05))
print("Adagrad                bit for bit:", torch.equal(ours, theirs))
model = copy.deepcopy(network)
optimizer = Adagrad(model.parameters())
with surefoot.watch(model, optimizer) as seen:
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        optimizer.step()
print("surefoot books it like any other:", seen.tally.total("memory/optimizer"), "bytes of state")
print("its state dict holds:", list(optimizer.state_dict()), list(optimizer.state_dict()["state"][0]))

# %% [markdown]
# ## RMSProp
#
# Replace the sum by an average that forgets. Then steps do not shrink for ever.


# %%
def rmsprop(p: Tensor, g: Tensor, s: dict, t: int, rate: float = 0.01, alpha: float = 0.99, eps: float = 1e-8) -> None:
    squares = s.setdefault("squares", torch.zeros_like(p))
    squares.mul_(alpha).addcmul_(g, g, value=1 - alpha)
    p.addcdiv_(g, squares.sqrt().add_(eps), value=-rate)


compare("RMSProp", lambda ps: torch.optim.RMSprop(ps, lr=0.01), rmsprop)

# %% [markdown]
# ## Adam
#
# Adam, of 2014, keeps both: an average of gradients (m) and one of their squares (v). The update is m / root of v.
#
# Both start at zero, so both are too small at first. Adam corrects that: after t updates it divides by 1 - beta^t.
# In the first update this gives m = g and v = g², so the step is g / |g|: the learning rate, with the sign
# of the gradient. A gradient of a million moves a weight as far as one of a millionth.


# %%
def adam(p: Tensor, g: Tensor, s: dict, t: int, rate: float = 1e-3, b1: float = 0.9, b2: float = 0.999) -> None:
    m, v = s.setdefault("m", torch.zeros_like(p)), s.setdefault("v", torch.zeros_like(p))
    m.lerp_(g, 1 - b1)
    v.mul_(b2).addcmul_(g, g, value=1 - b2)
    size = (v.sqrt() / math.sqrt(1 - b2**t)).add_(1e-8)
    p.addcdiv_(m, size, value=-rate / (1 - b1**t))


def adam_as_printed(p: Tensor, g: Tensor, s: dict, t: int) -> None:
    """The formulas as a textbook has them."""
    s["m"] = 0.9 * s.get("m", 0.0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0.0) + 0.001 * g**2
    m, v = s["m"] / (1 - 0.9**t), s["v"] / (1 - 0.999**t)
    p -= 1e-3 * m / (v.sqrt() + 1e-8)


compare("Adam", lambda ps: torch.optim.Adam(ps, lr=1e-3), adam)
compare("Adam as printed", lambda ps: torch.optim.Adam(ps, lr=1e-3), adam_as_printed)
for gradient in (1e6, 1.0, 1e-4):
    weight = torch.zeros(1)
    adam(weight, torch.tensor([gradient]), {}, 1)
    print(f"first update for a gradient of {gradient:7g}: {weight.item():.6f}")

# %% [markdown]
# The textbook form is the same algorithm. It rounds in other places, so the last bits differ. The tolerance to expect
# is some 1e-7 after 30 updates. Bits agree only if the operations are the same, in the same order.
#
# ## AdamW
#
# Weight decay pulls weights toward zero. For SGD you can add `decay * p` to the gradient. In Adam that goes wrong:
# the sum is divided by the root of v, so weights with large gradients hardly decay. AdamW takes the decay
# out of the gradient and shrinks the weight directly, by rate * decay.


# %%
def adamw(p: Tensor, g: Tensor, s: dict, t: int, rate: float = 1e-3, decay: float = 0.01) -> None:
    p.mul_(1 - rate * decay)
    adam(p, g, s, t, rate)


compare("AdamW", lambda ps: torch.optim.AdamW(ps, lr=1e-3), adamw)
generator = torch.Generator().manual_seed(1)
for name, make in {"Adam with decay": torch.optim.Adam, "AdamW": torch.optim.AdamW}.items():
    left = []
    for noise in (0.01, 10.0):
        weight = nn.Parameter(torch.ones(200))
        optimizer = make([weight], lr=0.01, weight_decay=0.1)
        for _ in range(300):
            weight.grad = noise * torch.randn(200, generator=generator)
            optimizer.step()
        left.append(weight.mean().item())
    print(f"{name:16} weights left: {left[0]:.2f} with small gradients, {left[1]:.2f} with large ones")
print(f"{'by the formula':16} (1 - 0.01 * 0.1)^300 = {(1 - 0.001) ** 300:.2f}")

# %% [markdown]
# Not all weights should decay. Biases and norms have few numbers and a scale of their own. Put them into a second
# *parameter group* with a decay of zero. In a surefoot recipe, `decay="matrices"` does that.

# %%
groups = [
    {"params": [p for p in network.parameters() if p.ndim >= 2], "weight_decay": 0.1},
    {"params": [p for p in network.parameters() if p.ndim < 2], "weight_decay": 0.0},
]
for group in torch.optim.AdamW(groups, lr=1e-3).param_groups:
    print(
        sum(p.numel() for p in group["params"]), "parameters with decay", group["weight_decay"], "and rate", group["lr"]
    )

# %% [markdown]
# ## What memory costs
#
# An optimizer keeps its memory for every weight, for the whole run. Count it: momentum, Adagrad and RMSProp keep one
# number, Adam and AdamW two. In float32 that is 4 or 8 bytes per parameter. Adafactor keeps only row and column
# averages of the squares. An 8-bit Adam keeps both averages in one byte each, with a float32 scale for every 256 of
# them. `surefoot.plan` predicts the bytes from a run on fake tensors. Torch adds a counter of 4 bytes per tensor.


# %%
def stack() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))


count, tensors = sum(p.numel() for p in stack().parameters()), len(list(stack().parameters()))
kinds = {
    "SGD": (lambda ps: torch.optim.SGD(ps, lr=0.1), 0),
    "momentum": (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9), 4),
    "RMSProp": (torch.optim.RMSprop, 4),
    "AdamW": (torch.optim.AdamW, 8),
    "Adafactor": (torch.optim.Adafactor, None),
}
for name, (make, each) in kinds.items():
    plan = surefoot.plan(surefoot.recipe_of(stack, torch.zeros(32, 256), optimizer=make))
    planned = max(plan.steady.timeline.accounts.get("optimizer", (0,)))
    by_hand = "" if each is None else f", by hand {each} * {count:,} = {each * count:,}"
    print(f"{name:9} planned {planned:9,} bytes, {planned / count:.2f} per parameter{by_hand}")
print(f"8-bit Adam by hand: {2 * (1 + 4 / 256):.2f} per parameter")

# %% [markdown]
# With 4 bytes for the weight and 4 for the gradient, AdamW makes 16 bytes per parameter. That gives the sums of
# chapter 2: 112 GB for 7B parameters, and 40B parameters on 8 GPUs of 80 GB. The command line does this sum too:

# %%
command = [sys.executable, "-m", "surefoot", "hardware", "napkin", "8xh100-sxm"]
print(" ".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()))

# %% [markdown]
# ## Resuming needs the memory
#
# A checkpoint must hold the optimizer's state beside the weights. What happens without it? You may read that Adam's
# learning rates "reset to zero". It is the opposite. The averages are reset and the correction starts at t = 1. So the
# first update is a full step of the learning rate in every weight, as in a fresh run. With its memory, Adam had long
# learned that most of the gradient is noise, and took smaller steps.


# %%
def sizes_after_resume(*, with_state: bool) -> list[float]:
    """The mean size of the next updates after 300 updates and a reload."""
    model = copy.deepcopy(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for t in range(303):
        if t == 300:
            saved, optimizer = optimizer.state_dict(), torch.optim.Adam(model.parameters(), lr=1e-3)
            if with_state:
                optimizer.load_state_dict(saved)
            moved = []
        before = model[0].weight.detach().clone()
        optimizer.zero_grad()
        part = slice(16 * (t % 8), 16 * (t % 8) + 16)
        F.mse_loss(model(inputs[part]), targets[part]).backward()
        optimizer.step()
        if t >= 300:
            moved.append((model[0].weight - before).abs().mean().item())
    return moved


for with_state in (True, False):
    sizes = sizes_after_resume(with_state=with_state)
    print("with state:   " if with_state else "without state:", " ".join(f"{size:.1e}" for size in sizes))

# %% [markdown]
# ## Choosing a rate
#
# A rate that is too low wastes time. A rate that is too high diverges. The useful range is about one power of ten. Do
# not guess: make short pilot runs over a wide range and take a rate a little below the best. `surefoot check RECIPE
# --lr-range` does such a sweep.

# %%
for rate in (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 3.0):
    model = copy.deepcopy(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    print(f"rate {rate:6g}: loss {loss.item():9.3g}")

# %% [markdown]
# A rate that suits SGD is often far too large for Adam, since Adam moves every weight by about the rate itself.
# surefoot says so.

# %%
model = nn.Sequential(nn.Linear(10, 128), nn.Tanh(), nn.Linear(128, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.3)
with surefoot.watch(model, optimizer) as seen:
    for _ in range(4):
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        optimizer.step()
for finding in seen.findings.findings:
    print(f"{finding.severity} {finding.check}\n  seen   {finding.seen}\n  remedy {finding.remedy}")

# %% [markdown]
# The rate also depends on the batch. Think of k small steps with SGD. If the weights hardly move in between, they add
# up to one step on a batch k times as large, with k times the rate. That is the *linear scaling rule*. It is an
# approximation, good for small rates. The cell tests it: 8 batches of 16 against one of 128. For Adam, many people use
# the root of k. Try before you trust either.


# %%
def weights_after(batches: list[tuple[Tensor, Tensor]], rate: float) -> Tensor:
    """All weights after one SGD update for each batch."""
    model = copy.deepcopy(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for x, y in batches:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


begin = torch.cat([p.detach().flatten() for p in network.parameters()])
parts = list(zip(inputs.split(16), targets.split(16), strict=True))
for rate in (0.001, 0.01, 0.1):
    small = weights_after(parts, rate) - begin
    for factor in (8, 1):
        off = (weights_after([(inputs, targets)], factor * rate) - begin - small).norm() / small.norm()
        print(f"rate {rate:5g}: one large batch at {factor} times the rate is off by {off:.0%}")

# %% [markdown]
# ## Exercises
#
# **1.** Write `nesterov`, a rule like `momentum`, that matches `torch.optim.SGD(lr=0.02, momentum=0.9, nesterov=True)`.
# It follows `g + mu * memory` in place of the memory.


# %% tags=["solution"]
def nesterov(p: Tensor, g: Tensor, s: dict, t: int, rate: float = 0.02, mu: float = 0.9) -> None:
    s["memory"] = g.clone() if t == 1 else s["memory"].mul_(mu).add_(g)
    p.add_(g.add(s["memory"], alpha=mu), alpha=-rate)


# %% tags=["check"]
wanted = trained(make=lambda ps: torch.optim.SGD(ps, lr=0.02, momentum=0.9, nesterov=True))
assert torch.allclose(trained(rule=nesterov), wanted, atol=1e-6)
assert not torch.allclose(trained(rule=momentum), wanted, atol=1e-6)

# %% [markdown]
# **2.** How many GB do weights, gradients and AdamW's state of a 13B model take in float32? And with plain SGD?

# %% tags=["solution"]
adamw_gb, sgd_gb = 13 * 16, 13 * 8

# %% tags=["check"]
assert adamw_gb * 1e9 == 13e9 * (4 + 4 + 4 + 4)
assert sgd_gb * 1e9 == 13e9 * (4 + 4)

# %% [markdown]
# **3.** Lion keeps one memory m. It moves by the *sign* of `b1 * m + (1 - b1) * g`, and then sets m to
# `b2 * m + (1 - b2) * g`. Write `lion(p, g, s, t)` with rate 1e-3, b1 = 0.9, b2 = 0.99 and no decay.


# %% tags=["solution"]
def lion(p: Tensor, g: Tensor, s: dict, t: int, rate: float = 1e-3, b1: float = 0.9, b2: float = 0.99) -> None:
    m = s.setdefault("m", torch.zeros_like(p))
    p.add_((b1 * m + (1 - b1) * g).sign(), alpha=-rate)
    m.mul_(b2).add_(g, alpha=1 - b2)


# %% tags=["check"]
p, state = torch.zeros(2), {}
lion(p, torch.tensor([5.0, -0.1]), state, 1)
assert torch.allclose(p, torch.tensor([-1e-3, 1e-3]))
lion(p, torch.tensor([-0.1, -0.1]), state, 2)  # 0.9 * 0.05 - 0.1 * 0.1 > 0: the memory wins
assert torch.allclose(p, torch.tensor([-2e-3, 2e-3]))
lion(p, torch.tensor([-1.0, 0.0]), state, 3)
assert torch.allclose(p, torch.tensor([-1e-3, 3e-3]))

# %% [markdown]
# **4.** Without its correction, how large is Adam's first update, in units of the learning rate? Use beta1 = 0.9 and
# beta2 = 0.999, and leave eps out.

# %% tags=["solution"]
uncorrected = (1 - 0.9) / math.sqrt(1 - 0.999)

# %% tags=["check"]
m, v = 0.1 * 7.0, 0.001 * 7.0**2
assert math.isclose(uncorrected, m / math.sqrt(v), rel_tol=1e-9)

# %% [markdown]
# ## Next
#
# You can now say what a step holds in memory. [Chapter 7](07_napkin.py) asks what it costs in time and money: FLOPs,
# MFU and the napkin.
