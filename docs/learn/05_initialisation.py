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
# # 5. Initialisation: where weights start
#
# This chapter derives the right size of first weights and measures it through many layers.
#
# At its end you will know:
#
# - why weights must not start equal;
# - why a layer changes the size of its input, and by how much;
# - where the formulas of Xavier and Kaiming come from, and which one fits your activation;
# - how a residual network grows with depth, and how GPT-2 stops that;
# - how to read the first loss and the first gradients as a test of the start.

# %%
import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from surefoot.recipes.cruncher import Cruncher

torch.manual_seed(0)
torch.set_num_threads(1)


def show(seen) -> None:
    """Prints what was found in a watched loop."""
    for finding in seen.findings.findings:
        print(f"{finding.severity} {finding.check}\n  seen   {finding.seen}\n  remedy {finding.remedy}")


# %% [markdown]
# ## Not all the same
#
# Let every weight of a layer start at 0.1. Then all its units compute the same number. They also get the same
# gradient, so they stay the same for ever. A layer of 32 units then works like one unit. This is the *symmetry* that
# random weights break. Biases may start at zero: the weights are enough to tell units apart.

# %%
inputs, labels = torch.randn(64, 8), torch.randint(0, 2, (64,))
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
for layer in (model[0], model[2]):
    nn.init.constant_(layer.weight, 0.1)
    nn.init.zeros_(layer.bias)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
with surefoot.watch(model, optimizer) as seen:
    for _ in range(10):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
show(seen)
print("different units after 10 updates:", len(model[0].weight.detach().unique(dim=0)), "of 32")

# %% [markdown]
# ## How a layer scales its input
#
# Take inputs with mean 0 and variance 1, and weights with mean 0 and variance v. One output of the layer is the sum
# of d products, where d is the number of *inputs*:
#
# output = w1 * x1 + w2 * x2 + ... + wd * xd
#
# The products are independent, so their variances add. Each product has the variance v. The sum has d * v.
#
# With `torch.randn` weights, v is 1. So the output's standard deviation is the square root of d. Some texts name
# the number of outputs here. That is wrong, as the cell shows: only the number of inputs counts.

# %%
for d_in, d_out in ((64, 1024), (256, 256), (1024, 64)):
    x, w = torch.randn(2000, d_in), torch.randn(d_in, d_out)
    naive, scaled = (x @ w).std(), (x @ (w / math.sqrt(d_in))).std()
    root = math.sqrt(d_in)
    print(f"{d_in:5} inputs, {d_out:5} outputs: randn {naive:6.2f}, root of inputs {root:6.2f}, scaled {scaled:.2f}")

# %% [markdown]
# The remedy follows at once. Choose v = 1 / d, that is, divide `randn` by the root of the inputs. The output has
# variance 1 again, whatever the width.
#
# ## Through depth
#
# One layer that doubles its input does no harm. Twenty of them multiply it by a million. A factor below 1 is as bad:
# the signal dies out. The gradient takes the same way back and suffers the same fate. These are *exploding* and
# *vanishing* gradients.
#
# The cell sends data through 20 linear layers, with weights a little too small, right, and a little too large.


# %%
def through(depth: int, width: int, std: float, activation=lambda x: x) -> tuple[float, float]:
    """The size of the output of many layers, and of the gradient at the first one."""
    generator = torch.Generator().manual_seed(3)
    first = x = torch.randn(256, width, generator=generator, requires_grad=True)
    for _ in range(depth):
        x = activation(x @ (std * torch.randn(width, width, generator=generator)))
    (gradient,) = torch.autograd.grad(x, first, torch.randn(x.shape, generator=generator))
    return x.std().item(), gradient.std().item()


width, depth = 256, 20
for factor in (0.5, 0.9, 1.0, 1.1, 2.0):
    out, back = through(depth, width, factor / math.sqrt(width))
    print(
        f"std = {factor:.1f} / root of d: output {out:8.1e}  gradient {back:8.1e}  {factor:.1f}^20 = {factor**20:.1e}"
    )

# %% [markdown]
# ## Xavier: both ways
#
# Backward multiplies by the transposed weights. There the number of *outputs* is what gets summed. So forward wants
# v = 1 / inputs and backward wants v = 1 / outputs. For square layers both agree. Otherwise Xavier Glorot's rule
# takes the middle:
#
# v = 2 / (inputs + outputs)
#
# The simple form 1 / inputs is often called Xavier too. They are the same for square layers only.

# %%
wide = nn.init.xavier_normal_(torch.empty(1024, 256))  # torch keeps weights as (outputs, inputs)
print(f"xavier_normal_: std {wide.std():.4f}, by hand {math.sqrt(2 / (1024 + 256)):.4f}")
print(f"the simple form, 1 / root of inputs: {256**-0.5:.4f}")

# %% [markdown]
# ## Kaiming: with ReLU
#
# ReLU sets half of the numbers to zero. What counts for the next layer is the mean of the squares. ReLU halves it.
# Over 20 layers that makes a factor of a million in the variance, and a thousand in size. So the weights
# have to make up for it: v = 2 / inputs. This is Kaiming He's rule. The 2 is called *gain squared*.

# %%
for name, std in {"1 / d": math.sqrt(1 / width), "2 / d": math.sqrt(2 / width)}.items():
    out, back = through(depth, width, std, torch.relu)
    print(f"ReLU, variance {name}: output {out:9.2e}   gradient {back:9.2e}")
for name, activation in {"tanh": torch.tanh, "gelu": F.gelu, "silu": F.silu}.items():
    x = torch.randn(1_000_000)
    kept = activation(x).square().mean().item()
    print(f"{name:4} keeps {kept:.2f} of the mean square, so its gain for data of size 1 is {kept**-0.5:.2f}")
print("torch's own gains:", {name: round(nn.init.calculate_gain(name), 2) for name in ("linear", "tanh", "relu")})

# %% [markdown]
# The gain of tanh in torch's table, 5/3, is a little more than the 1.59 of our measurement. It is a rule of thumb.
#
# What does `nn.Linear` do if you say nothing? It draws uniformly between minus and plus 1 / root of inputs. The
# variance of that is a third of 1 / inputs. So torch's default shrinks the signal in every layer. That is fine for two
# or three layers, or between norms. A deep plain stack needs its own start.

# %%
default = nn.Linear(256, 256).weight
print(f"nn.Linear: variance * inputs = {default.var().item() * 256:.3f}")
out, back = through(depth, width, math.sqrt(1 / (3 * width)), torch.relu)
print(f"20 layers of it with ReLU: output {out:.1e}, gradient {back:.1e}")

# %% [markdown]
# ## Cutting the tails
#
# A normal distribution has no end. In a large matrix a few weights are four or five standard deviations out. Many
# programs cut them off. There is a trap: the limits must be measured in standard deviations. If you divide by the root
# of 512 first and then clamp to -3 and 3, nothing is ever cut: those limits are 68 standard deviations away.
#
# `trunc_normal_` takes its limits as plain numbers too, so pass multiples of your std. It draws again instead of
# piling weights up at the limits. The result has a slightly smaller spread than you asked for.

# %%
d = 512
w = torch.randn(d, d) / math.sqrt(d)
print(
    "clamped at 3 after scaling :", (w.abs() > 3).sum().item(), "weights cut; limits at", f"{3 * math.sqrt(d):.0f} std"
)
print("clamped at 3 std           :", (w.abs() > 3 / math.sqrt(d)).sum().item(), "of", f"{w.numel():,} weights cut")
for limit in (2.0, 3.0):
    std = 1 / math.sqrt(d)
    cut = nn.init.trunc_normal_(torch.empty(d, d), std=std, a=-limit * std, b=limit * std)
    print(f"trunc_normal_ at {limit:.0f} std     : spread {cut.std() * math.sqrt(d):.3f} of what was asked")

# %% [markdown]
# ## A deep linear network
#
# The *cruncher* is a stack of linear layers with a head of one output. It is one of surefoot's recipes. You may find
# its size given as 2d² + d for two layers. That forgets the biases. Count them.

# %%
cruncher = Cruncher(width=512, layers=2)
counted = sum(parameter.numel() for parameter in cruncher.parameters())
print(f"counted {counted:,} | 2d² + d = {2 * 512**2 + 512:,}")
print(f"with biases, 2(d² + d) + d + 1 = {2 * (512**2 + 512) + 513:,}")

# %% [markdown]
# ## Residual networks
#
# A transformer does not replace its stream. Each block adds to it: x = x + f(x). If f keeps the size of what it gets,
# the variances add. After n additions of size 1, the variance is n + 1. That is far better than 2^n, but it grows.
#
# GPT-2 divides the last weights of each branch by the root of the number of branches. Its blocks have two branches
# each, so for L blocks that is the root of 2L. All branches together then add a variance of 1, and the stream ends near
# 1.41.


# %%
def residual(branches: int, scale: float, width: int = 128) -> float:
    """The size of a stream to which many normed branches were added."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(256, width, generator=generator)
    for _ in range(branches):
        w = scale / math.sqrt(width) * torch.randn(width, width, generator=generator)
        x = x + F.layer_norm(x, (width,)) @ w
    return x.std().item()


for blocks in (3, 12, 48):
    branches = 2 * blocks
    plain, scaled = residual(branches, 1.0), residual(branches, branches**-0.5)
    print(
        f"{blocks:3} blocks: plain {plain:5.2f}, root of 2L + 1 = {math.sqrt(branches + 1):5.2f}; scaled {scaled:.2f}"
    )

# %% [markdown]
# ## Reading the first loss
#
# A fresh classifier knows nothing. It should give each of k classes the same chance. Its loss is then the logarithm of
# k: 2.30 for 10 classes, 10.82 for the 50,257 tokens of GPT-2. A much higher first loss means that the model is sure
# and wrong. Its weights are too large. This is the cheapest test there is. surefoot runs it for you.

# %%
data, classes = torch.randn(128, 64), torch.randint(0, 10, (128,))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
good = F.cross_entropy(model(data), classes).item()
for layer in (model[0], model[2]):
    nn.init.normal_(layer.weight, std=1.0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
with surefoot.watch(model, optimizer) as seen:
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), classes)
        loss.backward()
        optimizer.step()
show(seen)
print(f"log(10) = {math.log(10):.2f} | torch's default starts at {good:.2f} | with randn: {loss.item():.1f}")

# %% [markdown]
# The first gradients tell even more. Print their size for each parameter. If it falls by the same factor from layer to
# layer, the signal vanishes. If it rises by the same factor, the signal explodes.

# %%
for name, std in {"nn.Linear's own": None, "Kaiming": True}.items():
    torch.manual_seed(5)
    deep = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())), nn.Linear(64, 10))
    for layer in deep:
        if std and isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    F.cross_entropy(deep(data), classes).backward()
    sizes = [layer.weight.grad.std().item() for layer in deep if isinstance(layer, nn.Linear)]
    print(f"{name:16} first to last layer:", " ".join(f"{size:.0e}" for size in sizes))

# %% [markdown]
# ## Seeds
#
# First weights are random. To repeat a run you must fix the seed of every source: torch, NumPy and Python's `random`.
# On a GPU `torch.manual_seed` covers CUDA as well.
#
# One seed for all has a catch. Add one layer, and every later draw shifts: the data order changes too. Give each
# source a generator of its own. Then you can vary the weights and keep the order, or the other way round.


# %%
def three_draws() -> tuple[float, float, float]:
    """One number of each source."""
    random.seed(42)
    np.random.seed(42)
    torch.manual_seed(42)
    return random.random(), np.random.rand(), torch.rand(()).item()


def first_samples(*, extra_layer: bool, apart: bool) -> list[int]:
    """The first samples of an epoch, after the weights were drawn."""
    weights = torch.Generator().manual_seed(1)
    order = torch.Generator().manual_seed(2) if apart else weights
    for _ in range(3 if extra_layer else 2):
        torch.randn(4, 4, generator=weights)
    return torch.randperm(100, generator=order)[:4].tolist()


print("seeded twice, drawn twice the same:", three_draws() == three_draws())
for apart in (False, True):
    few, more = (first_samples(extra_layer=extra, apart=apart) for extra in (False, True))
    print("own generators:" if apart else "one generator: ", few, "| with one layer more:", more)

# %% [markdown]
# ## Exercises
#
# **1.** Write `kaiming_(weight)` that fills a weight of shape (outputs, inputs) in place, for a layer that is followed
# by ReLU.


# %% tags=["solution"]
def kaiming_(weight: torch.Tensor) -> None:
    with torch.no_grad():
        weight.normal_(0, math.sqrt(2 / weight.shape[1]))


# %% tags=["check"]
torch.manual_seed(6)
for outputs, given in ((256, 1024), (1024, 256)):
    weight = torch.full((outputs, given), 7.0)
    kaiming_(weight)
    sizes = torch.relu(torch.randn(1000, given) @ weight.t()).square().mean().item()
    assert abs(sizes - 1) < 0.1, f"the mean square after ReLU is {sizes:.2f}, not 1"

# %% [markdown]
# **2.** What first loss do you expect from a language model with a vocabulary of 32,000? Put it into `expected`.

# %% tags=["solution"]
expected = math.log(32_000)

# %% tags=["check"]
assert abs(F.cross_entropy(torch.zeros(4, 32_000), torch.arange(4)).item() - expected) < 1e-3

# %% [markdown]
# **3.** Measure the gain of an activation: write `gain(activation)`. With weights of variance gain² / inputs, the mean
# square of the numbers *before* each activation must stay at 1. Use a million normal numbers.


# %% tags=["solution"]
def gain(activation) -> float:
    x = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    return activation(x).square().mean().item() ** -0.5


# %% tags=["check"]
assert abs(gain(torch.relu) - math.sqrt(2)) < 0.01
torch.manual_seed(7)
x = torch.randn(512, 512)
for _ in range(10):
    x = F.silu(x) @ (gain(F.silu) / math.sqrt(512) * torch.randn(512, 512))
assert 0.7 < x.square().mean().item() < 1.4

# %% [markdown]
# **4.** A GPT has 24 blocks with two branches each, and its weights start with std 0.02. With which std should
# the last matrix of each branch start?

# %% tags=["solution"]
last_std = 0.02 / math.sqrt(2 * 24)

# %% tags=["check"]
assert math.isclose(last_std**2 * 48, 0.02**2, rel_tol=1e-9)

# %% [markdown]
# ## Next
#
# The weights have a good start. [Chapter 6](06_optimizers.py) moves them: six optimizers by hand, from SGD to AdamW.
