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
# # 10. Recompute and compile
#
# This chapter trades time for memory, and then buys time back. At its end you will know
#
# - how large activations are, and what makes them grow;
# - how to forget them and compute them again, by hand and with one argument;
# - what "selective" means, and where the rule of the square root holds;
# - what `torch.compile` does, what stops it, and how to measure whether it helped.

# %%
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import surefoot
from surefoot.recipes.gpt import gpt
from surefoot.techniques.compile import graph_breaks

torch.manual_seed(0)
torch.set_num_threads(1)

# %% [markdown]
# Compiling takes a while, so we start it now in a process of its own. Its result is read near the end of the chapter.

# %%
COMPILED = """
import json, time
import torch
import torch.utils.benchmark as benchmark
from torch._inductor import metrics

torch.set_num_threads(1)

def chain(x):
    return (torch.sigmoid(x * 1.5 + 0.5) * x).relu() + x.tanh() * 0.1

x = torch.randn(1_000_000)
compiled = torch.compile(chain)
start = time.perf_counter()
compiled(x)
first = time.perf_counter() - start
eager, quick = (benchmark.Timer("f(x)", globals={"f": f, "x": x}).timeit(20).median for f in (chain, compiled))
same = torch.allclose(chain(x), compiled(x), atol=1e-6)
print(json.dumps({"first": first, "eager": eager, "compiled": quick, "kernels": metrics.generated_kernel_count,
                  "same": same}))
"""
compiling = None
if shutil.which(os.environ.get("CXX", "g++")):
    script = Path(tempfile.mkdtemp()) / "compiled.py"
    script.write_text(COMPILED)
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    compiling = subprocess.Popen([sys.executable, str(script)], start_new_session=True, **quiet)

# %% [markdown]
# ## What the forward pass leaves behind
#
# Autograd keeps tensors for the backward pass: the **activations**. We can listen as it saves them. Views share
# memory, so each storage counts once, and parameters do not count. The plan does the same sum for a whole step.


# %%
class Block(nn.Module):
    def __init__(self, width=64, drop=0.0):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(drop), nn.Linear(4 * width, width))

    def forward(self, x):
        return x + self.mlp(x)


class Tower(nn.Module):
    """Blocks on top of each other; with `segment`, that many at a time are recomputed."""

    def __init__(self, blocks, segment=0):
        super().__init__()
        self.blocks, self.segment = nn.ModuleList(Block() for _ in range(blocks)), segment

    def forward(self, x):
        if not self.segment:
            for block in self.blocks:
                x = block(x)
            return x
        for first in range(0, len(self.blocks), self.segment):
            x = checkpoint(nn.Sequential(*self.blocks[first : first + self.segment]), x, use_reentrant=False)
        return x


def saved_bytes(model, x):
    """Bytes that autograd keeps after a forward pass, without parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model(x)
    total = sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in own)
    return total, out


print("blocks  batch  saved KiB")
for blocks, batch in ((2, 64), (4, 64), (4, 128)):
    print(f"{blocks:6}{batch:7}{saved_bytes(Tower(blocks), torch.randn(batch, 64))[0] / 1024:11.0f}")

# %% [markdown]
# Activations grow with depth and with the batch. In a language model they grow with the context too, since every token
# is a sample. That is why they, and not the weights, usually fill the card. One text says that 24 layers with a batch
# of 32 need "10+ GB". A plan gives the number, without a GPU. We plan 4 layers of GPT-2 medium's width and scale up.

# %%
recipe = gpt(layers=4, width=1024, heads=16, context=512, micro_batch_size=32, global_batch_tokens=32 * 512)
activations = surefoot.plan(recipe).steady.tally.under("memory/activations")
per_block = sum(size for name, size in activations.items() if name.startswith("blocks.1"))
print(f"one block keeps {per_block / 1e9:.2f} GB; 24 blocks keep {24 * per_block / 1e9:.1f} GB in float32")

# %% [markdown]
# ## Forgetting, by hand
#
# The idea: in the forward pass, keep only the *input* of a block. In the backward pass, run the block again to get
# what is missing, then go on. The usual name is gradient checkpointing. We say **recompute**, so that "checkpoint"
# can mean a saved file. As an autograd function it takes a dozen lines.


# %%
class Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, block, keep_random, x, *parameters):
        ctx.block, ctx.random = block, torch.get_rng_state() if keep_random else None
        ctx.save_for_backward(x)
        with torch.no_grad():
            return block(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        now = torch.get_rng_state()
        if ctx.random is not None:
            torch.set_rng_state(ctx.random)  # dropout must drop the same elements again
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            out = ctx.block(again)
        torch.set_rng_state(now)
        inputs = (again, *ctx.block.parameters())
        return None, None, *torch.autograd.grad(out, inputs, gradient)


class ByHand(nn.Module):
    def __init__(self, block, keep_random):
        super().__init__()
        self.block, self.keep_random = block, keep_random

    def forward(self, x):
        return Recomputed.apply(self.block, self.keep_random, x, *self.block.parameters())


block, data = Block(drop=0.2), torch.randn(128, 64)


def gradients(model):
    torch.manual_seed(1)
    size, out = saved_bytes(model, data.requires_grad_())
    torch.randn(1)  # something else draws a random number in between
    return size, torch.autograd.grad(out.square().mean(), tuple(block.parameters()))


size, plain = gradients(block)
print(f"plain                    keeps {size / 1024:4.0f} KiB")
for name, model in (("by hand", ByHand(block, True)), ("by hand, chance not kept", ByHand(block, False))):
    size, again = gradients(model)
    apart = max((a - b).abs().max() / a.abs().max() for a, b in zip(plain, again, strict=True))
    print(f"{name:25}keeps {size / 1024:4.0f} KiB, gradients off by {apart:.1%}")

# %% [markdown]
# The same numbers, a thirteenth of the memory. The last row shows the one trap. The block must compute *the same*
# twice. If dropout draws new numbers, gradients are wrong and nothing is reported. `torch.utils.checkpoint` keeps
# PyTorch's random state for you. It cannot keep a NumPy generator of yours. `surefoot check` reports
# [recomputation-differs](../checks/gradients/recomputation-differs.md).
#
# Use `checkpoint(block, x, use_reentrant=False)`. The older, reentrant kind is close to our function above. It gives
# no gradients to parameters if no input asks for one. In a recipe, one word does it: `recompute=full`.
#
# ## What it costs, and what "selective" saves
#
# Full recomputing runs each block's forward pass once more: `2N` more FLOPs on top of `6N`. That is a third more work
# at most. But not all results are equal. Those of matrix products and attention are expensive to make. Those of norms
# and GELU are cheap. **Selective** recompute keeps the expensive results and recomputes the cheap ones.

# %%
small = gpt(layers=4, width=256, heads=4, context=256, global_batch_tokens=2048)
print(f"{'recompute':12}{'peak MiB':>10}{'extra FLOPs':>13}")
for recompute in ("none", "selective", "budget=0.5", "full"):
    plan = surefoot.plan(dataclasses.replace(small, recompute=recompute))
    flops = plan.steady.tally.total("flops")
    extra = plan.steady.tally.total("flops/recompute") / (flops - plan.steady.tally.total("flops/recompute"))
    print(f"{recompute:12}{plan.steady.peak.peak_bytes / 2**20:10.0f}{extra:13.1%}")

# %% [markdown]
# Even with `none` a few FLOPs run twice: fused attention keeps no scores and computes them again in its backward.
#
# `budget=0.5` keeps half and picks the blocks that cost the least time. Full recomputing costs less than a third
# here, because the backward pass stops as soon as it has what it needs: the last product of a block is not run again.
#
# So how much does it save? "About half" is often said. It depends on how much of the peak is activations. Ask a plan.
#
# ## The square root
#
# Recompute segments of several blocks, and you keep fewer inputs. But one whole segment comes back at once. With `N`
# equal layers and segments of `s`, you hold `N/s` inputs and `s` layers. The sum is smallest at `s = sqrt(N)`: memory
# grows as the square root of the depth. Now measure it on 9 blocks.

# %%
print(f"{'segment':>8}{'N/s + s':>9}{'above the states, MiB':>23}")
for segment in (0, 1, 3, 9):
    tower = surefoot.recipe_of(lambda segment=segment: Tower(9, segment), torch.zeros(256, 64))
    steady = surefoot.plan(tower, reuse=False).steady
    states = sum(steady.tally.total(f"memory/{name}") for name in ("parameters", "optimizer", "gradients"))
    rule = f"{9 / segment + segment:.0f}" if segment else "9"
    print(f"{segment or 'none':>8}{rule:>9}{(steady.peak.peak_bytes - states) / 2**20:23.1f}")

# %% [markdown]
# The rule says 3, and 1 is best. Why? The rule takes a layer's inside to be as large as its input. Inside our block
# there are tensors four times as wide. So inputs are cheap and insides are expensive, and a segment should be one
# block. The same holds for a transformer. The square root is right for chains of plain layers.
#
# ## Compile: what stops it
#
# `torch.compile` works in three parts. *Dynamo* reads your Python as it runs and records a graph of operations. *AOT
# autograd* derives the backward graph. *Inductor* writes code for both: C++ for a CPU, Triton for a GPU.
#
# Some Python cannot be recorded. An `if` on a tensor's value must wait for that value. There the graph ends, Python
# runs, and a new graph begins: a **graph break**. Results stay right, but nothing is fused across the break.


# %%
def broken(x):
    y = x * 2
    if y.sum() > 0:
        return y.relu()
    return y - 1


for found in graph_breaks(lambda: torch.compile(broken)(torch.ones(3))):
    print("a break at line", found.where.rpartition(":")[2], "-", found.reason)
torch._dynamo.reset()
try:
    torch.compile(broken, fullgraph=True, backend="eager")(torch.ones(3))
except Exception as error:
    print("fullgraph=True raises:", str(error).splitlines()[0])

# %% [markdown]
# `surefoot profile` lists every break of a recipe with its line. Without it, run your script with
# `TORCH_LOGS=graph_breaks`. Older texts set `torch._dynamo.config.verbose` for this; that makes *errors* longer.
#
# **Shapes.** A graph is made for the shapes it saw. You may read that each new length compiles again, so that you
# must pass `dynamic=True`. Count it. This backend compiles nothing and counts how often it is asked to.


# %%
def graphs_for(lengths, *, dynamic):
    torch._dynamo.reset()
    graphs = []
    counted = torch.compile(
        lambda x: (x * 2).sum(), backend=lambda graph, _: graphs.append(graph) or graph.forward, dynamic=dynamic
    )
    for length in lengths:
        counted(torch.ones(length, 4))
    return len(graphs)


for dynamic in (False, None, True):
    print(f"dynamic={dynamic!s:6} 5 lengths, {graphs_for((5, 7, 9, 11, 13), dynamic=dynamic)} graphs")
torch._dynamo.reset()

# %% [markdown]
# The default, `None`, compiles for the first length, then once more for *any* length. So `dynamic=True` saves one
# compilation, not one for each length.
#
# ## Compile: what it gains
#
# Six element-wise operations in a row read and write the whole tensor six times. Fused into one kernel they read it
# once and write it once. Chapter 7 told you why that matters: such operations wait for memory. Here is what the
# process that we started has measured.

# %%
result = None
if compiling is not None:
    try:
        result = json.loads(compiling.communicate(timeout=8)[0] or "null")
    except subprocess.TimeoutExpired:
        os.killpg(compiling.pid, signal.SIGKILL)  # the compilers that it started, too
        compiling.wait()
if result:
    print(
        f"first call {result['first']:.1f} s; then {result['eager'] / result['compiled']:.1f} times as fast as eager,"
    )
    print(f"in {result['kernels']} kernel, with the same result: {result['same']}")
else:
    print("no C++ compiler here, or it took too long. Measured on 2 busy cores of an Intel Xeon, 17 November 2026,")
    print("torch 2.13.0: first call 22 to 84 s, then 2.2 to 2.6 times as fast as eager, in 1 kernel")

# %% [markdown]
# - The **first call** is slow, once for each process; a cache on disk shortens it. Leave it out of every timing.
# - Texts promise 1.3 to 2 times, or 15 to 40%. Large matrix products gain nothing, element-wise chains gain much.
#   Only a measurement tells: `torch.utils.benchmark.Timer` as above, or `surefoot profile RECIPE --against
#   compile=off`.
# - Modes: `default`; `reduce-overhead` uses CUDA graphs and helps small batches; `max-autotune` tries many kernels
#   and takes long to compile. In a recipe: `compile=blocks compile_mode=max-autotune`.
# - With autocast, compile the model and put autocast around the call. Casts are then fused with the work beside them.
# - Compiled code may also keep less for the backward pass. A plan counts the model as written.

# %%
linear = nn.Linear(8, 8)
linear.compile(backend="eager")
with torch.autocast("cpu", dtype=torch.bfloat16):
    print("compiled, under autocast:", linear(torch.ones(2, 8)).dtype)

# %% [markdown]
# ## When it does not fit
#
# Three numbers are called "memory". *Live* bytes are those of your tensors. *Allocated* bytes are rounded up to
# blocks. *Reserved* bytes are what PyTorch took from the GPU and keeps. The unused rest between blocks is
# **fragmentation**. On a GPU read `torch.cuda.max_memory_allocated()` and `max_memory_reserved()`. A plan models all
# three.

# %%
target = surefoot.plan(dataclasses.replace(small, global_batch_tokens=2048), on="h100-sxm")
print(f"live      {target.live_bytes:12,}")
print(f"allocated {target.allocated_bytes['classic']:12,}")
print(f"reserved  {target.reserved_bytes['classic']:12,} by default")
print(f"reserved  {target.reserved_bytes['expandable']:12,} with expandable segments")
print(f"with the CUDA context {target.fit.total_bytes:,} of {target.fit.memory_bytes:,} bytes: fits {target.fit.fits}")

# %% [markdown]
# If memory runs out, PyTorch raises `torch.OutOfMemoryError`. Make the micro-batch smaller first and accumulate more
# of them: the update stays the same. Better, ask before: `surefoot plan gpt --on h100-sxm --fit` finds the largest
# micro-batch by plans alone.


# %%
def with_what_fits(step, size, global_size):
    """Halves the micro-batch until a step fits; returns the micro-batch and how many make a step."""
    while size:
        try:
            step(size)
            return size, global_size // size
        except torch.OutOfMemoryError:
            size //= 2
    raise RuntimeError("not even one sample fits")


def pretend(size):
    if size > 12:
        raise torch.OutOfMemoryError("a GPU that holds 12 samples")


print("micro-batch and number of them:", with_what_fits(pretend, 64, 64))

# %% [markdown]
# ## Exercises
#
# **1.** Write `best_segment(layers, input_bytes, inside_bytes)`: the whole number of layers per segment that makes
# `layers / s * input_bytes + s * inside_bytes` smallest.


# %% tags=["solution"]
def best_segment(layers, input_bytes, inside_bytes):
    return min(range(1, layers + 1), key=lambda s: layers / s * input_bytes + s * inside_bytes)


# %% tags=["check"]
assert best_segment(64, 1, 1) == 8
assert best_segment(16, 1, 13) == 1
assert best_segment(100, 4, 1) == 20

# %% [markdown]
# **2.** With full recomputing a step takes `8N` FLOPs per token and not `6N`. A GPU runs at a *hardware* utilisation
# of 60%. What is its MFU, which counts only what the model needs?

# %% tags=["solution"]
mfu = 0.6 * 6 / 8

# %% tags=["check"]
assert abs(mfu * 8 / 6 - 0.6) < 1e-9, mfu

# %% [markdown]
# **3.** Write `whole(x)`: the same function as `broken`, without a graph break.


# %% tags=["solution"]
def whole(x):
    y = x * 2
    return torch.where(y.sum() > 0, y.relu(), y - 1)


# %% tags=["check"]
torch._dynamo.reset()
assert not graph_breaks(lambda: torch.compile(whole)(torch.ones(3)))
for example in (torch.tensor([1.0, -0.5]), torch.tensor([-1.0, 0.5])):
    assert torch.equal(whole(example), broken(example))

# %% [markdown]
# **4.** How many bytes does a chain of `n` ReLUs on a float32 tensor of `size` elements keep for its backward pass?
# Write `relu_bytes(n, size)`. ReLU keeps its result and nothing else.


# %% tags=["solution"]
def relu_bytes(n, size):
    return n * size * 4


# %% tags=["check"]
chain = nn.Sequential(*[nn.ReLU() for _ in range(5)])
assert relu_bytes(5, 1000) == saved_bytes(chain, torch.randn(1000, requires_grad=True))[0]

# %% [markdown]
# ## Next
#
# One device has its limits. [Chapter 11](11_ranks.py) uses many.
