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
# # 3. Autograd, and where activations live
#
# This chapter shows how PyTorch finds gradients, and what it has to keep in memory to do so.
#
# At its end you will know:
#
# - what the graph is, who builds it, and when it is freed;
# - what `requires_grad`, `grad_fn`, *leaf*, `no_grad` and `detach` mean;
# - why gradients add up, and why a second backward fails;
# - what changes in place break, loudly or silently;
# - which tensors a forward leaves behind, and how many bytes they take.

# %%
import warnings

import torch
from torch import nn

import surefoot

torch.manual_seed(0)
torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")

# %% [markdown]
# ## The chain rule by hand
#
# Take `y = w * x + b` and the loss `(y - 10)^2`, with x = 2, w = 3, b = 1. Then y is 7 and the loss is 9.
# How does the loss change if w grows a little? Go backward from the loss, one operation at a time:
#
# - the square: d loss / d y = 2 * (y - 10) = -6
# - the sum: d y / d b = 1, so d loss / d b = -6
# - the product: d y / d w = x = 2, so d loss / d w = -6 * 2 = -12
#
# Each step multiplies the gradient that arrives from the loss by its own small derivative. That is all there is to
# backpropagation. Autograd does the same walk. You write the forward only.

# %%
x = torch.tensor(2.0, requires_grad=True)
w = torch.tensor(3.0, requires_grad=True)
b = torch.tensor(1.0, requires_grad=True)
y = w * x + b
loss = (y - 10) ** 2
loss.backward()
print("loss", loss.item(), "| w.grad", w.grad.item(), "| b.grad", b.grad.item(), "| x.grad", x.grad.item())

# %% [markdown]
# ## The graph
#
# How does torch know the way back? While the forward runs, every operation leaves a *node*. The node knows which
# operation it was and where its inputs came from. A result carries its node in `grad_fn`. The nodes form a graph,
# and you can walk through it. Below, `AccumulateGrad` is where the walk ends: there the gradient is added to a
# tensor's `.grad`.


# %%
def print_graph(node: object, depth: int = 0) -> None:
    """Prints a node and everything that it leads back to."""
    print("  " * depth + type(node).__name__)
    for behind, _ in node.next_functions:
        if behind is not None:
            print_graph(behind, depth + 1)


x = torch.tensor(3.0, requires_grad=True)
y = x**2 + 2 * x + 1
print_graph(y.grad_fn)
y.backward()
print("dy/dx = 2x + 2 =", x.grad.item())

# %% [markdown]
# A *leaf* is a tensor that no recorded operation made: a parameter, or a tensor that you created. Only leaves get a
# `.grad`. Results in the middle have a `grad_fn` and keep no gradient unless you ask with `retain_grad()`.

# %%
weight = torch.randn(3, requires_grad=True)
middle = weight * 2
print("weight: leaf", weight.is_leaf, "grad_fn", weight.grad_fn)
print("middle: leaf", middle.is_leaf, "grad_fn", type(middle.grad_fn).__name__)

# %% [markdown]
# The graph is a record of what ran, not of what could have run. An `if` or a loop in Python needs no special care.
# Only the branch that was taken is recorded.


# %%
def square_or_cube(x: torch.Tensor) -> torch.Tensor:
    return x**2 if x.item() > 0 else x**3


for start in (2.0, -2.0):
    x = torch.tensor(start, requires_grad=True)
    square_or_cube(x).backward()
    print(f"x = {start:+.0f}: gradient {x.grad.item():.0f}")

# %% [markdown]
# ## Four rules of backward
#
# **It starts from one number.** A loss must be a scalar, since "the gradient of a vector" is not one direction.
# Take a mean or a sum first.
#
# **Gradients add up.** Backward adds to `.grad`. It never replaces it. Two backwards give the sum. This lets you
# split a large batch into small ones. It is also why every loop must clear the gradients.
#
# **The graph is freed.** After backward the saved tensors are gone, and a second backward on the same graph is an
# error. `retain_graph=True` keeps them, at the price of their memory.
#
# **Only what was recorded counts.** If nothing required a gradient, there is no graph and backward is an error.


# %%
def message(call) -> str:
    """The first words of the error that a call raises."""
    try:
        call()
    except RuntimeError as error:
        return str(error).split(".")[0].split(" (")[0]
    return "no error"


vector = torch.randn(3, requires_grad=True) * 2
print("a vector    :", message(vector.backward))
p = torch.ones(2, requires_grad=True)
p.sum().backward()
p.sum().backward()
print("two backward:", p.grad.tolist())
once = (p**2).sum()
once.backward()
print("a second one:", message(once.backward))
plain = torch.randn(3, 4).mean()
print("no record   :", message(plain.backward))

# %% [markdown]
# ## Switching the recorder off
#
# - `torch.no_grad()` records nothing inside its block. Use it for evaluation and for updates by hand.
# - `torch.inference_mode()` does the same and is stricter: its results may never enter a graph later.
# - `x.detach()` gives the same numbers without the history.
# - `loss.item()` gives a Python number. It is fine for printing. Put it into a loss and the gradient is lost.
#
# A weight update is a change that must not be recorded. Here is linear regression with nothing but autograd. The
# data lie on the line 2x + 0.5, and the loop finds it.

# %%
features = torch.rand(100)
targets = 2.0 * features + 0.5 + 0.01 * torch.randn(100)
slope, offset = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
for _ in range(1000):
    loss = ((slope * features + offset - targets) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        for parameter in (slope, offset):
            parameter -= 0.2 * parameter.grad
            parameter.grad = None
print(f"slope {slope.item():.2f}, offset {offset.item():.2f}, loss {loss.item():.5f}")
print("the same update, recorded:", message(lambda: slope.sub_(0.1)))

# %% [markdown]
# ## Changes in place
#
# Many nodes need a tensor of the forward again. `exp` saves its result, and a product saves its factors. If you
# overwrite such a tensor, the gradient would be wrong. Autograd notices: every tensor counts its changes, and the node
# compares. The error comes late, in backward, and not at the line that overwrote the tensor.
#
# `.data` goes behind autograd's back. It shares the numbers but not the counter. So autograd notices nothing, and the
# gradient is silently wrong. `detach()` shares both. Use `detach()`.

# %%
for name, overwrite in {
    "in place    ": lambda t: t.mul_(10),
    "via detach()": lambda t: t.detach().mul_(10),
    "via .data   ": lambda t: t.data.mul_(10),
}.items():
    a = torch.ones(2, requires_grad=True)
    e = a.exp()
    loss = e.sum()
    overwrite(e)
    problem = message(loss.backward)
    print(name, "->", problem[:60] if a.grad is None else f"gradient {a.grad[0]:.2f}, right is 2.72")

# %% [markdown]
# surefoot catches the silent one while a loop runs. Here a weight is shrunk through `.data`, after the forward
# and before the backward.

# %%
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, answers = torch.randn(32, 8), torch.randn(32, 1)
with surefoot.watch(model, optimizer) as seen:
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), answers)
        model[2].weight.data.mul_(0.9)
        loss.backward()
        optimizer.step()
for finding in seen.findings.findings:
    print(f"{finding.severity} {finding.check}\n  seen   {finding.seen}\n  remedy {finding.remedy}")

# %% [markdown]
# ## What a forward leaves behind
#
# The saved tensors are the *activations*. They live on the device of the computation, and they stay until
# backward has used them. The nodes themselves are small objects in the memory of the CPU.
#
# | what | where | how much |
# |---|---|---|
# | saved tensors (activations) | the device that computes | grows with batch, length and depth |
# | graph nodes | memory of the CPU | small: a record and a few pointers each |
# | gradients | beside their parameter | as large as the parameters |
# | parameters | their device | fixed |
#
# You can see each saved tensor with a hook. Note the names: `relu` saves its result, a linear layer saves
# its input, and addition saves nothing.


# %%
def saved_bytes(forward, *leaves: torch.Tensor) -> int:
    """Bytes of the storages that a forward saves for backward, each counted once, without those of the leaves."""
    storages: dict[int, int] = {}
    known = {leaf.untyped_storage().data_ptr() for leaf in leaves}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    del result
    return sum(storages.values())


t = torch.randn(1000, requires_grad=True)
other = torch.randn(1000)
for name, forward in {
    "t + 1": lambda: t + 1,
    "t * 3": lambda: t * 3,
    "t * other": lambda: t * other,
    "relu": lambda: (t + 0).relu(),
    "sin": lambda: (t + 0).sin(),
    "exp then relu": lambda: (t + 0).exp().relu(),
}.items():
    print(f"{name:14} saves {saved_bytes(forward, t):5,} bytes")

# %% [markdown]
# A node that only adds, or that multiplies by a constant, needs no tensor from the forward. `t` itself exists anyway,
# so we do not count it when a node saves it.
#
# ## The same for a whole step
#
# surefoot records every storage of a step: its purpose, when it is allocated and when it is freed. Double the batch
# and watch which account grows. Parameters, gradients and optimizer state do not care about the batch. Activations do.


# %%
def network() -> nn.Sequential:
    """Four linear layers, each with a ReLU."""
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())))


def planned(batch: int) -> surefoot.Plan:
    """The plan of one AdamW step of the network; nothing is run."""
    return surefoot.plan(surefoot.recipe_of(network, torch.zeros(batch, 256)))


print(f"{'batch':>6} {'parameters':>11} {'gradients':>10} {'optimizer':>10} {'activations':>12}")
for batch in (256, 512, 1024):
    moments = planned(batch).steady.timeline.accounts  # of every account, its bytes at each moment of a step
    sizes = [max(moments[name]) for name in ("parameters", "gradients", "optimizer", "activations")]
    print(f"{batch:6} {sizes[0]:11,} {sizes[1]:10,} {sizes[2]:10,} {sizes[3]:12,}")

# %% [markdown]
# The table shows the most that each account holds at any moment of a step. Gradients are exactly as large as the
# parameters, and AdamW's state is twice that (plus a counter for each tensor).
#
# Is the plan right? Count by hand. Each ReLU saves its result, `batch * 256` floats. The linear layers save their
# inputs, which are those same tensors, or the input of the model. The plan has four bytes more: the loss.

# %%
layers, data = network(), torch.randn(512, 256)
print("saved by a forward :", f"{saved_bytes(lambda: layers(data), data, *layers.parameters()):,} bytes")
print("4 ReLUs            :", f"{4 * 512 * 256 * 4:,} bytes")
print("planned activations:", f"{max(planned(512).steady.timeline.accounts['activations']):,} bytes")

# %% [markdown]
# ## A famous demo, measured
#
# You may meet this short demo. Two matrices of 5000 by 5000 take 0.2 GB. Then come `out = x @ w`, `out = out.relu()`,
# and `out.mean().backward()`. The claim is that memory rises to 0.4 GB, because both results are saved, and falls back
# after backward.
#
# Measure it. `fake_world` runs the code at full size, without any memory.


# %%
class Demo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(5000, 5000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x @ self.w
        return out.relu()


with surefoot.fake_world():
    demo, x = Demo(), torch.randn(5000, 5000)
    optimizer = torch.optim.SGD(demo.parameters(), lr=0.1)
    with surefoot.watch(demo, optimizer) as seen:
        out = demo(x)
        out.mean().backward()
        optimizer.step()
usage = seen.steps[0]
for phase in ("forward", "loss", "backward", "update"):
    print(f"most bytes in {phase:8}: {usage.phase_peaks[phase].peak_bytes / 1e9:.1f} GB")

# %% [markdown]
# So 0.4 GB is right for a moment only, inside the forward. The result of the product is *not* saved: the gradient of
# `w` needs `x`, and ReLU needs its own result. Once `out` names the ReLU's result, the product is freed. Then 0.3 GB
# are left. The true peak comes in backward: 0.5 GB. And memory does not fall back to 0.2. The gradient of `w` stays,
# and `out` is still held by its name: 0.4 GB.
#
# This also shows how a log can eat your memory. A loss that you keep in a list holds its whole graph. Keep
# `loss.item()`.

# %%
kept = [nn.functional.mse_loss(layers(data), data) for _ in range(3)]
each = saved_bytes(lambda: nn.functional.mse_loss(layers(data), data), data, *layers.parameters())
print("graphs alive because of the list:", sum(loss.grad_fn is not None for loss in kept), "of", f"{each:,} bytes each")
kept = [loss.item() for loss in kept]
print("what is left of them:", all(isinstance(number, float) for number in kept) and "three numbers")

# %% [markdown]
# ## Writing your own node
#
# If torch lacks an operation, you can give it a forward and a backward. `gradcheck` compares your backward with tiny
# differences, in float64. surefoot's check `wrong-custom-backward` does so for the functions in your loop.
#
# `torch.func` goes one step further: `grad` is a function that makes functions, and `vmap` runs one for each sample.
# Together they give the gradient of every sample alone.


# %%
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


point = torch.randn(4, dtype=torch.float64, requires_grad=True)
print("gradcheck:", torch.autograd.gradcheck(Cube.apply, (point,)))
per_sample = torch.func.vmap(torch.func.grad(lambda x: x**3))(torch.tensor([1.0, 2.0, 3.0]))
print("gradient of each sample:", per_sample.tolist())

# %% [markdown]
# ## Exercises
#
# **1.** Which of these end with a gradient in `x.grad`? (a) `x = torch.randn(3, 4)`, then `x.mean().backward()`;
# (b) the same with `requires_grad=True`; (c) as (b), all inside `torch.no_grad()`. And what is each element of the
# gradient where there is one? Set `works` to a set of letters and `element` to the number.

# %% tags=["solution"]
works, element = {"b"}, 1 / 12

# %% tags=["check"]
found = set()
for letter, wanted, recording in (("a", False, True), ("b", True, True), ("c", True, False)):
    x = torch.randn(3, 4, requires_grad=wanted)
    with torch.set_grad_enabled(recording):
        message(lambda x=x: x.mean().backward())
    if x.grad is not None:
        found.add(letter)
        assert abs(x.grad[0, 0].item() - element) < 1e-6
assert works == found

# %% [markdown]
# **2.** Write the gradients of `loss = ((x @ w - y) ** 2).mean()` for `w` by hand, without autograd. Shapes are (n, d),
# (d,) and (n,).


# %% tags=["solution"]
def gradient_by_hand(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return 2 / len(y) * x.t() @ (x @ w - y)


# %% tags=["check"]
x, y = torch.randn(20, 5), torch.randn(20)
w = torch.randn(5, requires_grad=True)
((x @ w - y) ** 2).mean().backward()
assert torch.allclose(gradient_by_hand(x, w.detach(), y), w.grad, atol=1e-5)

# %% [markdown]
# **3.** A batch of 64 does not fit. Write `in_parts(model, x, y, parts)` that leaves the same gradients in `.grad` as
# one backward of the mean squared error of the whole batch, with `parts` backwards of equal size.


# %% tags=["solution"]
def in_parts(model: nn.Module, x: torch.Tensor, y: torch.Tensor, parts: int) -> None:
    for some_x, some_y in zip(x.chunk(parts), y.chunk(parts), strict=True):
        (nn.functional.mse_loss(model(some_x), some_y) / parts).backward()


# %% tags=["check"]
x, y, small = torch.randn(64, 6), torch.randn(64, 1), nn.Linear(6, 1)
nn.functional.mse_loss(small(x), y).backward()
whole = small.weight.grad.clone()
small.zero_grad()
in_parts(small, x, y, 4)
assert torch.allclose(small.weight.grad, whole, atol=1e-6)

# %% [markdown]
# **4.** How many bytes does `x.sigmoid().tanh()` save for backward, where `x` is a result with 1,000 float32 elements?

# %% tags=["solution"]
saved = 2 * 1000 * 4

# %% tags=["check"]
start = torch.randn(1000, requires_grad=True)
assert saved == saved_bytes(lambda: (start + 0).sigmoid().tanh(), start)

# %% [markdown]
# ## Next
#
# You know what backward does and what it needs. [Chapter 4](04_loop.py) puts it into a loop of seven lines, and then
# takes each line away.
