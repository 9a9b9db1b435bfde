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
# # 9. Precision, accumulation and clipping
#
# This chapter trains with 16-bit numbers without losing the small ones. At its end you will know
#
# - what autocast casts, and what it leaves in float32;
# - why weights keep a float32 master copy;
# - how loss scaling works, written out by hand, and when you need it;
# - how to build a large batch from small ones, and the two ways to normalise it wrongly;
# - how to clip gradients, and in which order.

# %%
import dataclasses

import torch
from torch import nn

import surefoot
from surefoot.recipes.gpt import gpt

F = nn.functional
torch.manual_seed(0)
torch.set_num_threads(1)

# %% [markdown]
# ## Three formats in one table
#
# Chapter 2 took these formats apart bit by bit. What matters here is range and step. The **range** says how small and
# how large a number may be. The **step** is the gap between 1 and the next number.

# %%
print(f"{'format':10}{'largest':>12}{'smallest normal':>18}{'smallest':>12}{'step at 1':>12}")
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    print(f"{str(dtype)[6:]:10}{info.max:12.3g}{info.smallest_normal:18.3g}{smallest:12.3g}{info.eps:12.3g}")
print("1e-8 in float16:", torch.tensor(1e-8).half().item(), " in bfloat16:", torch.tensor(1e-8).bfloat16().item())

# %% [markdown]
# Float16 is often said to end at 6e-5. That is its smallest *normal* number. It still has *subnormal* numbers down to
# 6e-8, with fewer and fewer digits. Below that there is only zero. Bfloat16 has the range of float32 and coarse
# steps.
#
# ## Autocast: the right format for each operation
#
# `torch.autocast` looks at each operation as it runs. Products go to 16 bits, since tensor cores are fast there.
# Losses go to float32, where rounding would add up. Parameters are not touched. You choose none of this. The lists are
# built into PyTorch, and they differ by device. This is the list for the CPU.

# %%
x, layer, labels = torch.randn(4, 8), nn.Linear(8, 8), torch.tensor([0, 1, 2, 3])
with torch.autocast("cpu", dtype=torch.bfloat16):
    h = layer(x)
    results = {
        "linear": h,
        "layer norm": F.layer_norm(h, (8,)),
        "softmax": h.softmax(-1),
        "float32 + bfloat16": x + h,
        "cross entropy": F.cross_entropy(h, labels),
    }
    with torch.autocast("cpu", enabled=False):  # a part that you want in float32, for example attention scores
        results["inside enabled=False"] = layer(h.float())
print("the weight:", layer.weight.dtype)
for name, result in results.items():
    print(f"{name:22}{str(result.dtype)[6:]}")

# %% [markdown]
# On CUDA, norms and softmax stay in float32. The last row shows how to set a policy for one part: switch autocast off
# around it. Write such choices down. `surefoot plan --tables` prints what stays in float32, and a run keeps its
# precision in `run.json`.
#
# ## What it saves, and what it does not
#
# You may read that mixed precision halves memory and doubles speed. Let two plans for an H100 check that.

# %%
small = gpt(layers=4, width=512, heads=8, context=512, global_batch_tokens=4096)
plans = {
    name: surefoot.plan(dataclasses.replace(small, precision=name), on="h100-sxm") for name in ("32-true", "bf16-mixed")
}
for name, plan in plans.items():
    memory = plan.steady.tally.under("memory")
    parts = "".join(
        f"{account} {memory[account] / 2**20:6.1f}  " for account in ("parameters", "optimizer", "activations")
    )
    print(f"{name:11} MiB: {parts} peak {plan.steady.peak.peak_bytes / 2**20:6.1f}")
    print(f"{'':11} a step takes {plan.time.seconds * 1e3:.1f} ms on an H100, by plan")
print(plans["bf16-mixed"].choices[0])

# %% [markdown]
# Memory for parameters and optimizer is the same: 16 bytes each, as in chapter 7. Only activations shrink, by about
# 40% here. So a model whose *states* fill the card gains little. The speed-up is more than two on an H100, if you
# compare with true float32. Against TF32 it would be near two.
#
# ## Master weights: why updates need float32
#
# A learning rate of 1e-4 makes small updates. Add 0.0001 a thousand times to a weight of 1. Things that *accumulate*
# need small steps between numbers.

# %%
for dtype in (torch.float32, torch.bfloat16):
    weight = torch.ones((), dtype=dtype)
    for _ in range(1000):
        weight += torch.tensor(1e-4, dtype=dtype)
    print(f"{str(dtype)[6:]:10} 1 + 1000 x 0.0001 = {weight.item():.4f}")

# %% [markdown]
# In bfloat16 nothing happened: every update was rounded away. So keep weights and optimizer state in float32, the
# **master copy**, and cast to 16 bits for the forward pass only. Autocast does just that. `surefoot check` reports
# [updates-rounded-away](../checks/precision/updates-rounded-away.md) if you do not.
#
# ## Loss scaling by hand
#
# With float16, gradients may fall below 6e-8 and turn into zeros. Multiply the loss by a large number, and the chain
# rule multiplies every gradient by it. Divide again in float32, before the update.

# %%
values = torch.randn(256, 256) * 1e-3
weights = torch.randn(256, 256, requires_grad=True)


def gradient(scale):
    weights.grad = None
    out = (values.half() @ weights.half()).float()
    (scale * (out * 1e-5).mean()).backward()
    return weights.grad / scale


print("share of gradients that are zero")
for scale in (1.0, 2.0**10, 2.0**20):
    print(f"  scale {scale:9.0f}: {(gradient(scale) == 0).float().mean():.0%}")

# %% [markdown]
# How large should the scale be? As large as possible without overflow. Nobody knows the right value in advance, so it
# is found while training: if a gradient is infinite, skip the update and halve the scale. If all went well for a
# while, double it. That is the whole algorithm. Here it is by hand.


# %%
class Scaler:
    def __init__(self, scale=2.0**24, patience=4):
        self.scale, self.patience, self.good = scale, patience, 0

    def step(self, optimizer, parameters):
        for parameter in parameters:
            parameter.grad /= self.scale
        if all(parameter.grad.isfinite().all() for parameter in parameters):
            optimizer.step()
            self.good += 1
            if self.good % self.patience == 0:
                self.scale *= 2
            return "updated"
        self.scale, self.good = self.scale / 2, 0
        return "skipped"


def classifier():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def batch_of(size):
    features = torch.randn(size, 16)
    return features, (features[:, 0] > 0).long() + 2 * (features[:, 1] > 0).long()


model, optimizer = classifier()
scaler, outcomes = Scaler(), []
for _ in range(24):
    features, targets = batch_of(32)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(features), targets)
    (loss * scaler.scale).backward()
    outcomes.append(scaler.step(optimizer, list(model.parameters())))
print(f"skipped {outcomes.count('skipped')} of 24, scale {scaler.scale:.0f}, loss {loss.item():.3f}")

# %% [markdown]
# `torch.amp.GradScaler` does the same with more care. Some skipped updates at the start are normal. The learning-rate
# schedule should not move in a skipped step. With bfloat16 you need **no scaler**: its range is that of float32.
#
# ## Clipping, and its order
#
# A single odd batch can give a huge gradient. Clipping limits the length of the whole gradient. Compute the norm over
# *all* parameters. If it is above the limit, multiply every gradient by the same factor. The direction stays the same.


# %%
def clip(parameters, largest):
    gradients = [parameter.grad for parameter in parameters]
    norm = torch.sqrt(sum(gradient.square().sum() for gradient in gradients))
    for gradient in gradients:
        gradient *= min(1.0, largest / (norm.item() + 1e-6))
    return norm


features, targets = batch_of(32)
norms = []
for clipping in (clip, nn.utils.clip_grad_norm_):
    model, _ = classifier()
    F.cross_entropy(model(features * 30), targets).backward()
    before = clipping(list(model.parameters()), 1.0)
    after = nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
    norms.append((round(before.item(), 4), round(after.item(), 4)))
print("norm before and after: by hand", norms[0], "by torch", norms[1])

# %% [markdown]
# Log the norm *before* clipping. If it is above the limit in nearly every step, your limit is a second learning rate.
#
# With a scaler, the order matters: `scale(loss).backward()`, then `unscale_`, then clip, then `step`. Clip before
# unscaling and you clip a gradient that is thousands of times too long. Watch both.


# %%
def scaled_loop(*, unscale_first):
    model, optimizer = classifier()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(6):
            features, targets = batch_of(32)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(features), targets)
            scaler.scale(loss).backward()
            if unscale_first:
                scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    return norm.item(), [f"{finding.check}: {finding.seen}" for finding in seen.findings.findings]


print("unscale_, then clip:", scaled_loop(unscale_first=True))
print("clip, no unscale_:  ", scaled_loop(unscale_first=False))

# %% [markdown]
# ## Accumulation: a large batch from small ones
#
# A batch of 256 does not fit? Run four of 64 and call `backward()` on each. Gradients add up by themselves, as
# chapter 3 showed. Divide by four, and the result is the gradient of the large batch.


# %%
def gradient_of(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


features, targets = batch_of(256)
model, optimizer = classifier()
F.cross_entropy(model(features), targets).backward()
whole = gradient_of(model)
for divisor in (4, 1):
    optimizer.zero_grad()
    for part, answers in zip(features.split(64), targets.split(64), strict=True):
        (F.cross_entropy(model(part), answers) / divisor).backward()
    ratio = gradient_of(model).norm() / whole.norm()
    print(f"divided by {divisor}: {ratio:.4f} times the gradient of the whole batch")

# %% [markdown]
# Forgetting the division makes the step four times too long. That is the first mistake, and you can see it. The
# second one is quiet. Sentences have different lengths, so micro-batches hold different numbers of tokens. The mean
# of four means is then *not* the mean of all tokens: a short micro-batch counts as much as a long one.

# %%
counts = [3, 40, 8, 21]
tokens = [torch.randint(0, 50, (2, count)) for count in counts]


def sentence_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def accumulated(normalise):
    model, _ = sentence_model()
    for part in tokens:
        total = F.cross_entropy(model(part).flatten(0, 1), ((part * 7 + 1) % 50).flatten(), reduction="sum")
        normalise(total, part.numel()).backward()
    return gradient_of(model)


right = accumulated(lambda total, count: total / (2 * sum(counts)))
means = accumulated(lambda total, count: total / count / 4)
print(f"mean of means: {(means - right).norm() / right.norm():.0%} away from the gradient of all tokens")

# %% [markdown]
# The remedy: add up sums, and divide **once**, by the number of all tokens. A surefoot loss returns a sum and a
# count, and the step divides. In a loop of your own, `watch` names both mistakes.


# %%
def accumulating_loop(*, divisor):
    model, optimizer = sentence_model()
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            for count in counts:
                part = torch.randint(0, 50, (2, 40))
                answers = (part * 7 + 1) % 50
                answers[:, count:] = -100  # padding
                loss = F.cross_entropy(model(part).flatten(0, 1), answers.flatten())
                (loss / divisor).backward()
            optimizer.step()
    return [f"{finding.check}: {finding.seen}" for finding in seen.findings.findings]


print(accumulating_loop(divisor=1))
print(accumulating_loop(divisor=4))

# %% [markdown]
# **Batch norm sees the micro-batch.** Its mean and variance come from 64 samples, not from 256. Accumulation cannot
# fix that. Layer norm looks at one sample alone, so it does not care.

# %%
samples = torch.randn(256, 16)
for norm in (nn.BatchNorm1d(16), nn.LayerNorm(16)):
    whole_batch = norm(samples)
    parts = torch.cat([norm(part) for part in samples.split(8)])
    print(
        f"{type(norm).__name__}: micro-batches of 8 change the output by up to {(whole_batch - parts).abs().max():.2f}"
    )

# %% [markdown]
# ## Exercises
#
# **1.** Write `largest_scale(gradient)`: the largest power of two by which this float32 gradient can be multiplied
# without an overflow in float16. Return a float.


# %% tags=["solution"]
def largest_scale(gradient):
    scale = 1.0
    while (gradient * scale * 2).half().isfinite().all():
        scale *= 2
    return scale


# %% tags=["check"]
sample = torch.tensor([1e-7, -3e-4])
assert (sample * largest_scale(sample)).half().isfinite().all()
assert not (sample * largest_scale(sample) * 2).half().isfinite().all()
assert largest_scale(sample) == 2.0**27, largest_scale(sample)

# %% [markdown]
# **2.** Write `global_mean(sums, counts)`: the loss of all tokens, from the sum and the count of each micro-batch.


# %% tags=["solution"]
def global_mean(sums, counts):
    return sum(sums) / sum(counts)


# %% tags=["check"]
losses = torch.rand(72, generator=torch.Generator().manual_seed(0))
parts = losses.split(counts)
got = global_mean([part.sum().item() for part in parts], counts)
assert abs(got - losses.mean().item()) < 1e-6, got
assert abs(got - sum(part.mean().item() for part in parts) / 4) > 1e-4

# %% [markdown]
# **3.** Write `is_lost(weight, update)`: does adding `update` to `weight` change nothing in bfloat16?


# %% tags=["solution"]
def is_lost(weight, update):
    weight = torch.tensor(weight, dtype=torch.bfloat16)
    return bool(weight + torch.tensor(update, dtype=torch.bfloat16) == weight)


# %% tags=["check"]
assert [is_lost(1.0, 1e-3), is_lost(1.0, 1e-2), is_lost(0.01, 1e-4), is_lost(256.0, 0.5)] == [True, False, False, True]

# %% [markdown]
# **4.** A GPU fits 8 sequences of 2,048 tokens. You want 524,288 tokens per step. How many micro-batches is that on
# one GPU?

# %% tags=["solution"]
micro_batches = 524_288 // (8 * 2_048)

# %% tags=["check"]
planned = dataclasses.replace(small, tokens_per_sample=2_048, micro_batch_size=8, global_batch_tokens=524_288)
assert micro_batches * planned.micro_batch_size * planned.tokens_per_sample == planned.global_batch_tokens

# %% [markdown]
# ## Next
#
# Precision shrinks activations a little. [Chapter 10](10_recompute.py) makes most of them vanish.
