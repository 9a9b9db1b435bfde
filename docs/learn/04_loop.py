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
# # 4. The seven-line loop
#
# This chapter explains every line of a training loop by taking it away and watching what happens.
#
# At its end you will know:
#
# - the seven lines, their order and the reason for each;
# - what goes wrong if one is missing, and which of these bugs raise no error;
# - why evaluation needs two switches;
# - how often to step a scheduler, and where clipping goes;
# - how to let `surefoot.watch` look for all of this while your loop runs.

# %%
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot

torch.manual_seed(0)
torch.set_num_threads(1)

# %% [markdown]
# ## The task
#
# The data are 256 points with 8 features and 2 classes. The model has a BatchNorm and a Dropout, since these two
# behave differently in training and in evaluation. `fresh` builds everything anew, always with the same seed.
# So two loops differ only in what we change.

# %%
features = torch.randn(256, 8)
labels = (features[:, 0] * features[:, 1] + features[:, 2] > 0).long()
device = torch.device("cpu")


def fresh(rate: float = 0.1):
    """A new model, its optimizer and a loader of 8 batches."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    return model, optimizer, DataLoader(TensorDataset(features, labels), batch_size=32, shuffle=True)


def show(seen, note: str = "") -> None:
    """Prints what was found in a watched loop."""
    findings = seen.findings.findings
    for finding in findings:
        print(f"{finding.severity} {finding.check}\n  seen   {finding.seen}\n  remedy {finding.remedy}")
    if not findings:
        print("nothing found")
    if note:
        print(note)


# %% [markdown]
# ## The whole loop
#
# Five of the lines are the step itself: clear, forward, loss, backward, update. The other two set the mode of the model
# and bring the batch to its device.

# %%
model, optimizer, loader = fresh()
with surefoot.watch(model, optimizer) as seen:
    for _ in range(2):
        model.train()  # 1. the mode for training
        for inputs, targets in loader:
            inputs, targets = inputs.to(device), targets.to(device)  # 2. the batch goes where the model is
            optimizer.zero_grad()  # 3. forget the last gradients
            outputs = model(inputs)  # 4. forward: builds the graph
            loss = F.cross_entropy(outputs, targets)  # 5. one number to make smaller
            loss.backward()  # 6. backward: fills .grad, frees the graph
            optimizer.step()  # 7. update: reads .grad, changes the weights
show(seen, f"last loss {loss.item():.3f} after {len(seen.steps)} updates")

# %% [markdown]
# ## Without line 1: `model.train()`
#
# `train()` and `eval()` set a flag. Two kinds of layers read it. Dropout drops only in training. BatchNorm uses the
# batch's own mean in training and a stored average in evaluation. Gradients do not care about the flag. If you forget
# it at the start, nothing happens: a new model is in training mode. The usual bug is to evaluate once and then to
# train on in evaluation mode. Here, the second epoch does that.

# %%
model, optimizer, loader = fresh()
with surefoot.watch(model, optimizer) as seen:
    for _ in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(features)
show(seen)

# %% [markdown]
# ## Without line 2: `.to(device)`
#
# This one is loud. Two devices in one operation raise an error. We have no GPU here, so the model goes to the `meta`
# device of [chapter 1](01_tensors.py). Remember that `.to` gives back a *new* tensor: `inputs.to(device)` alone does
# nothing.

# %%
model, optimizer, loader = fresh()
model.to("meta")
try:
    model(features)
except RuntimeError as error:
    print("error:", str(error).split("\n")[0][:80])

# %% [markdown]
# ## Without line 3: `optimizer.zero_grad()`
#
# Backward adds to `.grad`. Without clearing, each update uses the sum of all gradients so far. It acts like a strange
# kind of momentum that never forgets. The loss may still fall, so the curve does not give it away.
#
# `zero_grad` sets each `.grad` to `None` and frees its memory. (Before torch 2.0 it wrote zeros. `set_to_none=False`
# still does.)

# %%
model, optimizer, loader = fresh()
norms = []
with surefoot.watch(model, optimizer) as seen:
    for inputs, targets in loader:
        F.cross_entropy(model(inputs), targets).backward()
        norms.append(model[0].weight.grad.norm().item())
        optimizer.step()
show(seen, "norm of one gradient, update by update: " + " ".join(f"{norm:.2f}" for norm in norms))

# %%
for to_none in (True, False):
    F.cross_entropy(model(features), labels).backward()
    optimizer.zero_grad(set_to_none=to_none)
    kept = model[0].weight.grad
    print(f"set_to_none={to_none}: the gradient is", None if kept is None else f"{kept.abs().sum().item()} in memory")

# %% [markdown]
# ## Without line 4: `model(...)`
#
# You cannot leave the forward out, but you can call it in the wrong way. `model(inputs)` runs the hooks of a module and
# then `forward`. `model.forward(inputs)` runs no hooks. Many tools live in hooks: FSDP, profilers, shape printers.

# %%
model, _, _ = fresh()
heard = []
hook = model.register_forward_hook(lambda module, given, result: heard.append(tuple(result.shape)))
model(features)
model.forward(features)
hook.remove()
print("two forwards, heard by the hook:", heard)

# %% [markdown]
# The forward has another trap: layers that are not registered. A module registers what you assign to `self`. It does
# not look inside plain lists. Layers in a list do their work, but no optimizer ever sees them. Use `nn.ModuleList`.
# For a fixed tensor that belongs to the model, use `register_buffer`.


# %%
class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(8, 32), nn.ReLU()]  # a plain list
        self.head = nn.Linear(32, 2)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x - self.mean
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


model = Hidden()
print("registered:", [name for name, _ in model.named_parameters()], "| saved:", list(model.state_dict()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with surefoot.watch(model, optimizer) as seen:
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
show(seen)

# %% [markdown]
# ## Without line 5: the right loss
#
# `cross_entropy` wants raw scores, the *logits*. It takes the logarithm of the softmax itself. If the model has
# already applied a softmax, it is applied twice. Then no probability can come near 1, and the gradients shrink.

# %%
model, optimizer, loader = fresh()
with surefoot.watch(model, optimizer) as seen:
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs).softmax(dim=1), targets).backward()
        optimizer.step()
certain = F.cross_entropy(torch.tensor([[1.0, 0.0]]), torch.tensor([0])).item()
show(seen, f"the smallest loss that is possible after a softmax over 2 classes: {certain:.3f}")

# %% [markdown]
# Why does it take logits? Because of numeric range. `softmax` followed by `log` fails as soon as one score is far
# ahead: the others become 0, and the logarithm of 0 is minus infinity. The trick is to subtract the largest score
# before taking exponents. `logsumexp` and `cross_entropy` do that.

# %%
scores = torch.tensor([[200.0, 0.0]])
print("log of softmax    :", scores.softmax(dim=1).log().tolist())
print("log_softmax       :", scores.log_softmax(dim=1).tolist())
largest = scores.max()
by_hand = scores - (largest + (scores - largest).exp().sum().log())
print("with the trick    :", by_hand.tolist())

# %% [markdown]
# ## Without line 6: `loss.backward()`
#
# No backward, no gradients. The optimizer skips every parameter without a gradient and says nothing.

# %%
model, optimizer, loader = fresh()
with surefoot.watch(model, optimizer) as seen:
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        optimizer.step()
show(seen)

# %% [markdown]
# A close relative: the backward is there, but the loss was cut from the graph. `loss.item()` is a plain number. A
# tensor made from it has no history. Before backward, `loss.grad_fn` should not be `None`.

# %%
model, optimizer, loader = fresh()
with surefoot.watch(model, optimizer) as seen:
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.tensor(F.cross_entropy(model(inputs), targets).item(), requires_grad=True)
        loss.backward()
        optimizer.step()
show(seen, f"grad_fn of the loss: {loss.grad_fn}")

# %% [markdown]
# ## Without line 7: `optimizer.step()`
#
# Gradients are computed and thrown away. The loss wobbles from batch to batch, so it looks alive.

# %%
model, optimizer, loader = fresh()
with surefoot.watch(model, optimizer) as seen:
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
show(seen)

# %% [markdown]
# ## Two switches for evaluation
#
# `model.eval()` changes what layers do. `torch.no_grad()` or `torch.inference_mode()` stops the recording. They are
# independent, and you need both. Without the first, the same data give another loss each time. Without the second, each
# batch builds a graph that nobody uses.

# %%
model, optimizer, loader = fresh()
with surefoot.watch(model, optimizer) as seen:
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():  # eval() is missing
        losses = [
            F.cross_entropy(model(x), y).item() for x, y in zip(features.split(64), labels.split(64), strict=True)
        ]
with torch.no_grad():
    measured = [F.cross_entropy(model(features), labels).item() for _ in range(4)]
show(seen, "four evaluations of one model: " + " ".join(f"{each:.3f}" for each in measured))

# %%
model.eval()
with torch.inference_mode():
    outputs = model(features)
    again = model(features)
accuracy = (outputs.argmax(dim=1) == labels).float().mean().item()
print("with both switches, twice the same:", torch.equal(outputs, again), f"| accuracy {accuracy:.0%}")
recorded = model(features).requires_grad
model.train()
print("a graph was built:", outputs.requires_grad, "| without the second switch:", recorded)

# %% [markdown]
# ## What you keep
#
# For a plot you keep the losses. Keep the numbers. A tensor in a list holds its graph, with all saved activations.

# %%
model, optimizer, loader = fresh()
history = []
with surefoot.watch(model, optimizer) as seen:
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        history.append(loss)  # should be loss.item()
show(seen)

# %% [markdown]
# ## The scheduler
#
# A scheduler changes the learning rate. `step` moves it by one unit. You choose the unit when you build it: if `T_max`
# counts epochs, step once per epoch. If it counts updates, step once per update. Both are fine. Mixing them is a
# bug. Some texts say that cosine belongs to epochs and OneCycle to batches. In truth only the count has to match.
# Language models step a cosine once per update.

# %%
model, optimizer, loader = fresh()
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)  # counted in epochs
rates = []
with surefoot.watch(model, optimizer) as seen:
    for _ in range(3):
        for inputs, targets in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            scheduler.step()  # stepped in updates
            rates.append(scheduler.get_last_lr()[0])
show(seen, "rates: " + " ".join(f"{rate:.2f}" for rate in rates[:12]) + " ...")

# %% [markdown]
# Four common shapes, over 10 units each. *Warm-up* starts low, since the first gradients are large and Adam's averages
# are still empty.


# %%
def rates_of(make) -> list[float]:
    """The learning rates of ten units."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, rates = make(optimizer), []
    for _ in range(10):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


schedules = torch.optim.lr_scheduler
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # joining two schedulers warns about an old argument
    for name, make in {
        "StepLR": lambda o: schedules.StepLR(o, step_size=5, gamma=0.1),
        "cosine": lambda o: schedules.CosineAnnealingLR(o, T_max=10),
        "OneCycle": lambda o: schedules.OneCycleLR(o, max_lr=1.0, total_steps=11),
        "warm-up, cosine": lambda o: schedules.SequentialLR(
            o, [schedules.LinearLR(o, 0.25, total_iters=3), schedules.CosineAnnealingLR(o, T_max=7)], [3]
        ),
    }.items():
        print(f"{name:16}", " ".join(f"{rate:.2f}" for rate in rates_of(make)))

# %% [markdown]
# ## Clipping
#
# One odd batch can give a huge gradient. Clipping scales all gradients down together if their norm is above a limit.
# It goes between backward and step. `clip_grad_norm_` returns the norm *before* clipping. Log it: a norm that
# jumps is the first sign of trouble.

# %%
model, optimizer, loader = fresh()
optimizer.zero_grad()
F.cross_entropy(model(features * 100), labels).backward()
before = nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)
after = nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
print(f"norm before {before:.3f}, after {after:.3f}")

# %% [markdown]
# ## How many times around
#
# One pass through the seven lines is one step. The number of steps is the number of tokens divided by the tokens of one
# batch. The cell does it for known models. For BERT the quoted 3.3 billion are the words of its data, which it
# read many times. The tokens follow from its steps: 256 sequences, 128 long and then 512 long.

# %%
for name, tokens, batch in (("LLaMA 7B", 1e12, 4e6), ("Llama 2 7B", 2e12, 4e6), ("Llama 3.1 405B", 15.6e12, 16e6)):
    print(f"{name:15} {tokens / 1e12:5.1f}T tokens / {batch / 1e6:.0f}M per step = {tokens / batch:9,.0f} steps")
bert = 256 * (900_000 * 128 + 100_000 * 512)
print(f"BERT-base       1,000,000 steps = {bert / 1e9:.0f}B tokens, {bert / 3.3e9:.0f} times its 3.3B words")

# %% [markdown]
# ## Exercises
#
# **1.** Write a complete `fit(steps)` for linear regression on the data below: one linear layer, mean squared error,
# SGD with clipping at norm 1. Return the model. It must pass `surefoot.watch` without an error.

# %%
torch.manual_seed(2)
points = torch.randn(100, 5)
values = points @ torch.tensor([[1.0], [-2.0], [0.5], [0.0], [3.0]]) + 0.1 * torch.randn(100, 1)


# %% tags=["solution"]
def fit(steps: int) -> nn.Module:
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(model(points), values).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
    return model


# %% tags=["check"]
assert F.mse_loss(fit(100)(points), values) < 0.02
with surefoot.watch() as seen:
    fit(5)
assert len(seen.steps) == 5
assert not seen.findings.errors, seen.findings.errors

# %% [markdown]
# **2.** Four loops have these symptoms. (a) Gradient norms grow from update to update. (b) The evaluation loss differs
# each time, with the same weights. (c) Every `.grad` is `None`, and no error is raised. (d) The loss cannot fall below
# 0.313 with two classes. Which line is at fault? Use the words `zero_grad`, `eval`, `backward` and `softmax`.

# %% tags=["solution"]
faults = {"a": "zero_grad", "b": "eval", "c": "backward", "d": "softmax"}

# %% tags=["check"]
assert norms[-1] > norms[0]
assert len(set(measured)) > 1
assert round(certain, 3) == 0.313
assert [faults[letter] for letter in "abcd"] == ["zero_grad", "eval", "backward", "softmax"]

# %% [markdown]
# **3.** Write `evaluate(model, inputs, targets)` that returns the mean loss and the accuracy as Python numbers, uses
# both switches, and leaves the model in the mode in which it found it.


# %% tags=["solution"]
def evaluate(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
    training = model.training
    model.eval()
    with torch.inference_mode():
        outputs = model(inputs)
        loss = F.cross_entropy(outputs, targets).item()
        right = (outputs.argmax(dim=1) == targets).float().mean().item()
    model.train(training)
    return loss, right


# %% tags=["check"]
tried, _, _ = fresh()
first, second = evaluate(tried, features, labels), evaluate(tried, features, labels)
assert first == second
assert isinstance(first[0], float)
assert 0 <= first[1] <= 1
assert tried.training
tried.eval()
evaluate(tried, features, labels)
assert not tried.training

# %% [markdown]
# **4.** A run has 3 epochs of 8 updates. What must `T_max` of a cosine be if you step it once per update, so that it
# reaches zero exactly at the end?

# %% tags=["solution"]
horizon = 3 * 8

# %% tags=["check"]
optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
scheduler = schedules.CosineAnnealingLR(optimizer, T_max=horizon)
course = []
for _ in range(24):
    optimizer.step()
    scheduler.step()
    course.append(scheduler.get_last_lr()[0])
assert course[-1] < 1e-9
assert course == sorted(course, reverse=True)

# %% [markdown]
# ## Next
#
# The loop is right. It still fails if the weights start in the wrong place. [Chapter 5](05_initialisation.py) shows
# where they should start.
