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
# # 11. Many ranks: data parallel, sharding, tensor parallel
#
# This chapter spreads one step over many processes. At its end you will know
#
# - what an all-reduce is, and what a ring sends;
# - why two ranks with half a batch each compute the gradient of the whole batch;
# - what DDP adds to that: buckets and overlap;
# - what ZeRO 1 to 3 and FSDP2 shard, and what they send for it;
# - how tensor parallel cuts a layer;
# - how to plan 256 GPUs on a laptop.
#
# A **rank** is one process, usually with one GPU. Real ranks below are two processes on this CPU that talk through
# *gloo*. On GPUs they would talk through *NCCL*; the code is the same.

# %%
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DistributedSampler

import surefoot
from surefoot.recipes.gpt import gpt

F = nn.functional
torch.manual_seed(0)
torch.set_num_threads(1)

# %% [markdown]
# ## Two real ranks
#
# The script below runs twice, once for each rank. Each process learns its place from two environment variables.
# Normally `torchrun --nproc-per-node 2 worker.py` sets them; for many machines it also takes `--nnodes`,
# `--node-rank` and `--rdzv-endpoint`. Here we set them ourselves. We start the ranks now and read their answers as we
# go.
#
# Read the script first. It computes the same gradient five times: whole, by hand, with DDP twice, with FSDP2.

# %%
WORKER = """
import json, os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=sys.argv[1], rank=rank, world_size=ranks)
answers = {}

# 1. an all-reduce: every rank brings numbers, every rank gets the sums
numbers = torch.tensor([1.0, 10.0]) * (rank + 1)
dist.all_reduce(numbers)
answers["all-reduce"] = numbers.tolist()

# 2. the gradient of the whole batch, on one rank
def make():
    torch.manual_seed(0)  # the same weights on every rank
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))

def backward(model, part):
    nn.functional.cross_entropy(model(x[part]), y[part]).backward()

def apart(gradients):
    return float((torch.cat([each.flatten() for each in gradients]) - whole).abs().max())

torch.manual_seed(1)
x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
mine = slice(rank * 16, rank * 16 + 16)
model = make()
backward(model, slice(None))
whole = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

# 3. data parallel by hand: half of the batch, then the mean over ranks
model = make()
backward(model, mine)
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
    parameter.grad /= ranks
answers["by hand"] = apart(parameter.grad for parameter in model.parameters())

# 4. DDP, with large and with small buckets; the hook is called once for each bucket
for cap in (25, 0.1):
    wrapped, buckets = DistributedDataParallel(make(), bucket_cap_mb=cap), []
    def hook(buckets, bucket):
        buckets.append(bucket.buffer().nbytes)
        return allreduce_hook(None, bucket)
    wrapped.register_comm_hook(buckets, hook)
    for _ in range(2):  # buckets are arranged after the first backward
        buckets.clear()
        wrapped.zero_grad()
        backward(wrapped, mine)
    answers[f"DDP, bucket_cap_mb={cap}"] = [apart(p.grad for p in wrapped.module.parameters()), buckets]
answers["names"] = [next(iter(wrapped.state_dict())), next(iter(wrapped.module.state_dict()))]

# 5. FSDP2: a rank keeps half of every parameter
sharded = make()
fully_shard(sharded)
backward(sharded, mine)
own = sum(parameter.to_local().numel() for parameter in sharded.parameters())
answers["FSDP2"] = [apart(p.grad.full_tensor() for p in sharded.parameters()), own, whole.numel()]
if rank == 0:
    print(json.dumps(answers))
dist.destroy_process_group()
"""
folder = Path(tempfile.mkdtemp())
(folder / "worker.py").write_text(WORKER)


def started(rank, ranks):
    places = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks)}
    command = [sys.executable, str(folder / "worker.py"), f"file://{folder}/meeting"]
    return subprocess.Popen(command, env=places, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


processes = [started(rank, 2) for rank in range(2)]

# %% [markdown]
# ## All-reduce, and what a ring sends
#
# An **all-reduce** adds up a tensor over all ranks and gives everyone the sum. How would you do it? If all send
# everything to one rank, that rank is a bottleneck. A **ring** is better. Cut the tensor into `n` pieces. Each rank
# passes a piece to its neighbour, who adds its own. After `n - 1` turns every piece is complete somewhere. After `n -
# 1` more turns everyone has all pieces. Here is a ring of four, played in one process.


# %%
def ring(tensors):
    """All-reduces in place; returns the bytes that one rank sends."""
    ranks, sent = len(tensors), 0
    pieces = [list(tensor.chunk(ranks)) for tensor in tensors]
    for turn in range(2 * (ranks - 1)):
        moving = [(rank - turn) % ranks for rank in range(ranks)]
        letters = [pieces[rank][moving[rank]].clone() for rank in range(ranks)]
        sent += letters[0].nbytes
        for rank in range(ranks):
            there = pieces[(rank + 1) % ranks][moving[rank]]
            there.copy_(there + letters[rank] if turn < ranks - 1 else letters[rank])
    return sent


tensors = [torch.randn(400) for _ in range(4)]
total = torch.stack(tensors).sum(0)
sent = ring(tensors)
print("all ranks hold the sum:", all(torch.allclose(tensor, total, atol=1e-5) for tensor in tensors))
print(f"a rank sent {sent} bytes for a tensor of {tensors[0].nbytes}: 2 (n - 1) / n = {sent / tensors[0].nbytes}")

# %% [markdown]
# The factor approaches 2 for many ranks and never exceeds it. The first half of the turns is a **reduce-scatter**:
# each rank ends with the sum of one piece. The second half is an **all-gather**. Remember both names; sharding needs
# them.
#
# ## Data parallel by hand
#
# Each rank has the whole model and half of the batch. Each computes the mean gradient of its half. The mean of two
# means is the mean of all, if the halves are equally large. (If they hold different numbers of *tokens*, divide by
# the count of all, as chapter 9 showed.) Now read what the ranks found.

# %%
printed = [process.communicate(timeout=120) for process in processes]
assert not any(process.returncode for process in processes), printed
answers = json.loads(printed[0][0])
print("all-reduce of [1, 10] and [2, 20]:", answers["all-reduce"])
print(f"by hand: off by {answers['by hand']:.0e} from the gradient of the whole batch")

# %% [markdown]
# So the update is the one you would get from a single machine with the large batch.
#
# ## DDP: buckets and overlap
#
# `DistributedDataParallel` does the same and hides the cost. It copies rank 0's weights to all at the start. It hooks
# into every parameter. It collects gradients in **buckets** of up to `bucket_cap_mb`, 25 MB by default. As soon as a
# bucket is full, its all-reduce starts while the backward pass goes on with earlier layers. Small buckets start
# sooner and cost more messages.

# %%
for name, (apart, buckets) in ((name, value) for name, value in answers.items() if name.startswith("DDP")):
    print(f"{name}: off by {apart:.0e}, buckets of {buckets} bytes")
print("names in the state:", answers["names"][0], "wrapped,", answers["names"][1], "in model.module")

# %% [markdown]
# Practical rules:
#
# - Save from one rank only, and save `model.module.state_dict()`. The wrapper's names begin with `module.`.
# - `nn.DataParallel` is the old way: one process, threads, one GPU that collects everything. Do not use it.
# - Give each rank its own samples, with `DistributedSampler` or an order of your own, and call `set_epoch`. Without
#   it every epoch has the same order. Watch it forget:

# %%
samples = list(range(8))
for epoch in range(2):
    lines = []
    for told in (False, True):
        places = [DistributedSampler(samples, num_replicas=2, rank=rank, seed=3) for rank in range(2)]
        for sampler in places:
            sampler.set_epoch(epoch if told else 0)
        lines.append(" | ".join(str(list(sampler)) for sampler in places))
    print(f"epoch {epoch}: without set_epoch {lines[0]}   with it {lines[1]}")

# %% [markdown]
# **Batch size and learning rate.** Eight ranks make the batch eight times as large and the steps eight times as few.
# The *linear scaling rule* raises the learning rate by the same factor. It is a first guess, not a law: one large
# step equals eight small ones only while the gradient hardly changes between them. Check on a bowl, `loss = w ** 2 /
# 2`.

# %%
for rate in (0.001, 0.02, 0.3):
    eight_small, one_large = (1 - rate) ** 8, 1 - 8 * rate
    print(f"rate {rate}: eight steps of w to {eight_small:6.3f}, one step at eight times the rate to {one_large:6.3f}")

# %% [markdown]
# At 0.3 the large step overshoots and lands on the other side. So scale, warm up, and test (chapter 12 has a range
# test).
#
# ## Sharding: ZeRO 1 to 3
#
# With DDP every rank keeps all 16 bytes of each parameter: 4 for itself, 4 for its gradient, 8 for the optimizer.
# That is waste. **ZeRO** cuts it up in three stages. Stage 1 shards the optimizer state, stage 2 the gradients too,
# stage 3 the parameters too.


# %%
def bytes_per_parameter(stage, ranks):
    parameter, gradient, optimizer = 4, 4, 8
    return (
        parameter / (ranks if stage >= 3 else 1)
        + gradient / (ranks if stage >= 2 else 1)
        + optimizer / (ranks if stage >= 1 else 1)
    )


for stage, name in enumerate(("DDP", "ZeRO 1", "ZeRO 2", "ZeRO 3, FSDP2")):
    print(f"{name:14} 7B on 8 ranks: {7 * bytes_per_parameter(stage, 8):6.1f} GB each")

# %% [markdown]
# With DDP, 7 billion parameters need 112 GB on each GPU and do not fit 80 GB. With stage 3 they need 14. So the
# choice is simple: if all states fit on one GPU, use DDP. If not, shard.
#
# **FSDP2** (`fully_shard`) is PyTorch's stage 3. Before a block runs, its parameters are gathered. After it, they are
# dropped. Gradients are reduce-scattered, so each rank gets the sum of its own part.

# %%
apart, own, all_of_them = answers["FSDP2"]
print(f"FSDP2: a rank keeps {own} of {all_of_them} parameters; gradients off by {apart:.0e}")

# %% [markdown]
# ## The price, from a plan
#
# What does sharding send for that? A plan runs DDP and FSDP2 on a *fake* process group. It books the bytes of every
# collective. We plan four H100s and divide by the number of parameters.

# %%
small = gpt(layers=3, width=256, heads=4, context=64, micro_batch_size=1, global_batch_tokens=256)
layouts = {
    "DDP": {"dp_replicate": 4},
    "FSDP2": {"dp_shard": 4},
    "FSDP2, kept after forward": {"dp_shard": 4, "reshard_after_forward": False},
}
plans = {name: surefoot.plan(dataclasses.replace(small, **layout), on="4xh100-sxm") for name, layout in layouts.items()}
print("bytes per parameter on a rank")
for name, plan in plans.items():
    tally, count = plan.steady.tally, plan.parameters
    states = (tally.total("memory/parameters") + tally.total("memory/optimizer")) / count
    kinds = ", ".join(f"{kind} {tally.total('traffic/' + kind) / count:.1f}" for kind in tally.under("traffic"))
    print(f"  {name:27}parameters and optimizer {states:4.1f}; {kinds}")

# %% [markdown]
# An all-reduce is a reduce-scatter and an all-gather, so it sends twice what either does. DDP's 4 bytes count as 8.
# FSDP2 gathers twice, for forward and for backward, and scatters once: 12. It sends half as much again. If you keep
# parameters after the forward pass, it is 8 again, and peak memory is near that of ZeRO 2. A plan also says how much
# of this overlaps with computation: look for "communication" in `surefoot plan --tables`. FSDP2 was built to work with
# `torch.compile`; use `compile=blocks` with it.
#
# ## 256 ranks on this machine
#
# Inside a fake world your own code runs too. Tensors have shapes and no memory.

# %%
with surefoot.fake_world(ranks=256):
    large = nn.Sequential(nn.Linear(8192, 32768), nn.GELU(), nn.Linear(32768, 8192))
    fully_shard(large)
    local = large[0].weight.to_local()
    print(f"{sum(p.numel() for p in large.parameters()):,} parameters; a rank holds {tuple(local.shape)} of the first")

# %% [markdown]
# ## Tensor parallel: cutting a layer
#
# Sharding stores a layer in pieces and computes it whole. **Tensor parallel** computes it in pieces. Cut the first
# matrix of an MLP by columns and the second by rows. Each rank computes its own slice of the middle. GELU works on
# each number alone, so no rank needs another's slice. Only the last sum is an all-reduce.

# %%
x, first, second = torch.randn(8, 16), torch.randn(16, 64), torch.randn(64, 16)
whole = F.gelu(x @ first) @ second
parts = [F.gelu(x @ a) @ b for a, b in zip(first.chunk(2, dim=1), second.chunk(2, dim=0), strict=True)]
print("the sum of both ranks is the whole:", torch.allclose(sum(parts), whole, atol=1e-3))
cut = surefoot.plan(dataclasses.replace(small, tp=2, dp_shard=1), on="2xh100-sxm")
print(f"planned with tp=2: {cut.steady.tally.under('collectives')} per step of {cut.micro_batches} micro-batches")

# %% [markdown]
# These sums happen in *every* layer, forward and backward, and no computation overlaps with them. So tensor parallel
# stays inside a machine with fast links. Three more ways to cut exist. *Pipeline* gives each rank some layers and
# sends batches through. Ranks idle at the start and the end: the bubble. *Context* parallel cuts the sequence.
# *Expert* parallel gives each rank some experts of a mixture. surefoot does not plan these three.

# %%
for micro_batches in (4, 16, 64):
    print(
        f"pipeline of 8 ranks, {micro_batches} micro-batches: idle {(8 - 1) / (micro_batches + 8 - 1):.0%} of the time"
    )

# %% [markdown]
# ## Exercises
#
# **1.** Write `sent_bytes(kind, size, ranks)`: what one rank sends by a ring, for `"all-reduce"`, `"all-gather"` and
# `"reduce-scatter"` of a tensor of `size` bytes.


# %% tags=["solution"]
def sent_bytes(kind, size, ranks):
    return (2 if kind == "all-reduce" else 1) * (ranks - 1) / ranks * size


# %% tags=["check"]
assert sent_bytes("all-reduce", 1600, 4) == ring([torch.zeros(400) for _ in range(4)])
assert sent_bytes("all-gather", 1600, 4) + sent_bytes("reduce-scatter", 1600, 4) == sent_bytes("all-reduce", 1600, 4)
assert sent_bytes("all-gather", 1000, 1) == 0

# %% [markdown]
# **2.** Write `fewest_ranks(parameters, memory_bytes)`: the fewest ranks on which ZeRO 3 holds all states of AdamW in
# float32, without activations.


# %% tags=["solution"]
def fewest_ranks(parameters, memory_bytes):
    return int(-(-parameters * 16 // memory_bytes))


# %% tags=["check"]
assert [fewest_ranks(7e9, 80e9), fewest_ranks(70e9, 80e9), fewest_ranks(5e9, 80e9)] == [2, 14, 1]

# %% [markdown]
# **3.** Write `own_samples(rank, ranks, count)`: which of `count` samples a rank takes, so that each sample goes to
# exactly one rank and no rank has two more than another.


# %% tags=["solution"]
def own_samples(rank, ranks, count):
    return list(range(rank, count, ranks))


# %% tags=["check"]
shares = [own_samples(rank, 3, 10) for rank in range(3)]
assert sorted(sample for share in shares for sample in share) == list(range(10))
assert max(map(len, shares)) - min(map(len, shares)) <= 1

# %% [markdown]
# **4.** Cut the *other* way: `row_parallel(x, weight, ranks)` computes `x @ weight` with the rows of `weight` spread
# over ranks. What must be cut beside it, and what joins the parts?


# %% tags=["solution"]
def row_parallel(x, weight, ranks):
    return sum(a @ b for a, b in zip(x.chunk(ranks, dim=-1), weight.chunk(ranks, dim=0), strict=True))


# %% tags=["check"]
assert torch.allclose(row_parallel(x, first, 4), x @ first, atol=1e-4)
assert row_parallel(x, torch.zeros(16, 3), 2).shape == (8, 3)

# %% [markdown]
# ## Next
#
# Now something goes wrong. [Chapter 12](12_debug_and_export.py) finds out what, and then ships a model.
