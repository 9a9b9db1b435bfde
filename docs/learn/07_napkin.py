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
# # 7. The napkin: FLOPs, bytes, days and dollars
#
# This chapter teaches you to price a training run before you start it. At its end you will know
#
# - how many operations a matrix product takes, and why training takes three times as many as a forward pass;
# - how to turn parameters and tokens into days and dollars;
# - what MFU, arithmetic intensity and a roofline are;
# - why a parameter costs 16 bytes in training;
# - which two often-quoted sums are wrong by a factor of two, and why.
#
# Every sum is first done by hand. Then `surefoot plan` does it by counting, and the two must agree.

# %%
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import surefoot
from surefoot.costs.napkin import napkin, ring_seconds
from surefoot.hardware import cluster
from surefoot.recipes.gpt import gpt

torch.manual_seed(0)
torch.set_num_threads(1)

# %% [markdown]
# ## A matrix product takes 2BDK operations
#
# Multiply a `B x D` matrix by a `D x K` matrix. The result has `B x K` numbers. Each of them is a sum of `D`
# products. A product is one operation. Adding it to the sum is another. So the whole takes `2 * B * D * K`
# floating-point operations, FLOPs for short.
#
# Let us count with a small example, and let the plan of a linear layer count too. A plan runs the step on tensors
# that have a shape and no memory, so it can count what this machine could never compute.


# %%
def forward_flops(B, D, K):
    layer = surefoot.recipe_of(lambda: nn.Linear(D, K, bias=False), torch.empty(1, D).expand(B, D))
    return surefoot.plan(layer).steady.tally.total("flops/forward")


for B, D, K in [(1024, 256, 64), (16384, 32768, 8192)]:
    print(f"{B} x {D} times {D} x {K}: by hand {2 * B * D * K:.3e}, planned {forward_flops(B, D, K):.3e}")

# %% [markdown]
# ## FLOPs are work, FLOP/s are speed
#
# The two words sound the same. **FLOPs** count work that is done. **FLOP/s** say how fast a machine does it. A time
# is one divided by the other. This cell measures what one core of your machine reaches on a large product.


# %%
def seconds_of(function, *, rounds=5):
    function()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


left, right = torch.randn(768, 768), torch.randn(768, 768)
best_rate = 2 * 768**3 / seconds_of(lambda: left @ right)
print(f"one core here: {best_rate / 1e9:.0f} GFLOP/s in float32")

# %% [markdown]
# GPUs are far faster, but only in the right format. Their **tensor cores** multiply small tiles of 16-bit numbers.
# Here is what the datasheets say. The figure of 1,979 TFLOP/s that you may see for the H100 is for *sparse* matrices,
# in which two of every four numbers are zero. Almost nobody trains that way. Use the dense figure, which is half of
# it.

# %%
print(f"{'device':15}{'fp32':>8}{'tf32':>8}{'bf16':>8}{'fp8':>8}   TFLOP/s, dense")
for name in ("a100-sxm-80gb", "h100-sxm"):
    peaks = surefoot.datasheet(name).dense_flops
    print(f"{name:15}" + "".join(f"{peaks.get(format_, 0) / 1e12:8.0f}" for format_ in ("fp32", "tf32", "bf16", "fp8")))
h100 = surefoot.datasheet("h100-sxm")
print(f"float32 on an H100 is {h100.dense_flops['bf16'] / h100.dense_flops['fp32']:.0f} times slower than bfloat16")

# %% [markdown]
# Float32 is often called "orders of magnitude slower" on such a GPU. It is one order, not several: 15 times. **TF32**
# is a middle way. It keeps float32 in memory and rounds to 10 fraction bits inside the product.
#
# These peaks are reached by libraries, not by your code. PyTorch hands a product to cuBLAS and a convolution to
# cuDNN. They pick a kernel for the shape, and the kernel runs on the GPU.
#
# ## Forward 2N, backward 4N
#
# Take a model of `N` parameters that are all in matrices. Each sample meets each parameter once in the forward pass.
# That is one multiplication and one addition: `2N` FLOPs per sample. A token counts as a sample in a language model.
#
# The backward pass has two products for each one of the forward pass. One gives the gradient of the weights, `h1.T @
# grad_h2`. The other gives the gradient of the input, `grad_h2 @ w2.T`. Both are as large as the forward product. So
# the backward pass takes `4N`, and training takes `6N` in all. Some texts say that it costs "about the same" as the
# forward pass. It costs twice as much. Only the first layer is cheaper: nobody asks for the gradient of the data.

# %%
width, batch = 64, 32
print("layers  forward/2NB  backward/forward")
for layers in (1, 2, 4, 16):
    stack = surefoot.recipe_of(
        lambda layers=layers: nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)]),
        torch.zeros(batch, width),
    )
    tally = surefoot.plan(stack).steady.tally
    forward, backward = tally.total("flops/forward"), tally.total("flops/backward")
    print(f"{layers:6}{forward / (2 * layers * width**2 * batch):13.2f}{backward / forward:18.2f}")

# %% [markdown]
# The ratio moves towards 2 as the model gets deeper.
#
# ## 6ND: days and dollars
#
# Now multiply by the tokens `D` of the whole run: **6ND**. Divide by what the machines do in a day. Machines never
# reach their peak, so multiply the peak by the **MFU**, the model FLOPs utilisation. It is the share of the peak that
# does useful model work. A half is a common first guess.
#
# How long do 70 billion parameters on 15 trillion tokens take on 1,024 H100 GPUs?

# %%
flops = 6 * 70e9 * 15e12
days = flops / (1024 * h100.dense_flops["bf16"] * 0.5 * 86400)
sums = napkin(cluster("1024xh100-sxm"), parameters=70e9, tokens=15e12)
print(f"by hand {days:.0f} days, by surefoot {sums.seconds / 86400:.0f} days, {sums.dollars / 1e6:.1f} million dollars")

# %% [markdown]
# On the command line: `surefoot hardware napkin 1024xh100-sxm --parameters 70e9 --tokens 15e12`.
#
# A few landmarks help to judge such numbers. GPT-3 took 3.14e23 FLOPs. GPT-4 is *said* to have taken 2e25; nobody has
# confirmed it. A US order of 2023, revoked in 2025, asked for a report above 1e26.

# %%
print(f"GPT-3 by 6ND, 175B parameters and 300B tokens: {6 * 175e9 * 300e9:.2e}")
for name, flops in [("GPT-3", 3.14e23), ("70B on 15T", 6.3e24), ("GPT-4, as rumoured", 2e25), ("the order", 1e26)]:
    print(f"{name:20}{flops:9.2e} FLOPs {flops / (1024 * 989e12 * 0.5 * 86400):8.0f} days on 1,024 H100")

# %% [markdown]
# Fine-tuning is cheap by the same rule, because `D` is small. Compare before you train from scratch.

# %%
scratch, tuned = 6 * 7e9 * 2e12, 6 * 7e9 * 50e6
print(f"7B from scratch on 2T tokens is {scratch / tuned:,.0f} times the work of fine-tuning it on 50M")

# %% [markdown]
# ## A correction: two weeks of 8 H100s
#
# A lecture note asks what 8 H100s do in two weeks and gets 4.7e21 FLOPs. Look at its sum: `8 * (60*60*24*7) * peak`.
# A week has 7 days, so this is *one* week at full peak. Two weeks at full peak are twice that. Two weeks at an MFU of
# one half are 4.8e21 again, so the number is fine and its label is not. **Say the MFU and the days with every such
# sum.**

# %%
week = 8 * 7 * 86400 * 989.5e12
two_weeks = napkin(cluster("8xh100-sxm"), days=14)
print(f"one week at peak            {week:.2e}")
print(f"two weeks at peak           {two_weeks.peak_flops_in_days:.2e}")
print(f"two weeks at half the peak  {two_weeks.flops_in_days:.2e}")

# %% [markdown]
# ## Another correction: 1.4 GB in 3.5 ms
#
# A book has four A100s that add up the gradients of 350M parameters. In float32 they are 1.4 GB. A ring sends `2 (n -
# 1) / n` of that from each device, 1.5 times as much for `n = 4`. The book divides by 600 GB/s and gets 3.5 ms. But
# 600 GB/s counts both directions of the link. In a ring, a device sends one way while it receives the other way. So
# 300 GB/s carry what it sends, and the answer is 7 ms.

# %%
gradients = 350e6 * 4
for label, bandwidth in (("both directions", 600e9), ("one way", surefoot.datasheet("a100-sxm-80gb").link_bandwidth)):
    seconds = ring_seconds(size_bytes=gradients, devices=4, bytes_per_second=bandwidth)
    print(
        f"{label:16}{seconds * 1e3:5.1f} ms; a step of 80 ms on 4 GPUs is {4 * 80e-3 / (80e-3 + seconds):.2f} x faster"
    )

# %% [markdown]
# The last column assumes that no traffic overlaps with the backward pass. With 7 ms it gives 3.68, close to the 3.7
# that the book reports. So its speed-up is what you get when *nothing* overlaps. Chapter 11 shows how DDP hides such
# traffic.
#
# ## How many steps?
#
# Steps are tokens divided by tokens per step. Larger batches mean fewer steps for the same tokens.

# %%
llama3 = 252e6 / 4e6 + (2.87e12 - 252e6) / 8e6 + (15.6e12 - 2.87e12) / 16e6  # the batch grew twice, says its paper
for name, steps in [("LLaMA 7B", 1e12 / 4e6), ("LLaMA 2 7B", 2e12 / 4e6), ("LLaMA 3.1 405B", llama3)]:
    print(f"{name:16}{steps:12,.0f} steps")
bert_tokens = 256 * (900_000 * 128 + 100_000 * 512)
print(f"BERT-base: 1,000,000 steps read {bert_tokens / 1e9:.1f}B tokens")

# %% [markdown]
# BERT's corpus is often given as 3.3B *tokens* for a million steps. It has 3.3B words. A million steps of 256
# sequences read 42.6B tokens, so the corpus was read about 13 times.
#
# ## 16 bytes for each parameter
#
# Plain AdamW in float32 keeps four numbers of 4 bytes for each parameter: the parameter, its gradient and two running
# averages. The averages alone are 8 bytes. So 8 GPUs of 80 GB hold the states of 40 billion parameters. A model of 7
# billion needs 112 GB, which no 80 GB card has. Activations come on top. Check the 16 with a plan. The batch is tiny
# here, so nearly all memory is state.

# %%
print(f"8 x 80 GB hold {8 * 80e9 / 16 / 1e9:.0f}B parameters; 7B need {7e9 * 16 / 1e9:.0f} GB")
small = surefoot.plan(gpt(layers=4, width=512, heads=8, context=8, micro_batch_size=1, global_batch_tokens=8))
tally = small.steady.tally
for account in ("parameters", "gradients", "optimizer", "activations"):
    print(f"{account:12}{tally.total('memory/' + account) / small.parameters:6.2f} bytes per parameter")

# %% [markdown]
# ## Roofline: which wall do you hit?
#
# A kernel must also fetch its numbers. **Arithmetic intensity** is FLOPs per byte moved. A GPU has a ridge: peak
# FLOP/s divided by memory bytes per second. Below the ridge you wait for memory. Above it you wait for arithmetic.
# That is the whole **roofline**.
#
# Element-wise work does one FLOP for each number and moves all of them. It is linear in the size of the tensor, so it
# never counts in a FLOP sum. It may still take most of the *time* when matrices are small.

# %%
ridge = h100.dense_flops["bf16"] / h100.memory_bandwidth
print(f"ridge of an H100 in bf16: {ridge:.0f} FLOPs per byte")
print(f"{'add two tensors':26}{1 / 6:8.2f}  memory")
for n in (64, 512, 1024, 4096):
    intensity = 2 * n**3 / (3 * n * n * 2)
    print(f"{f'product of {n} x {n}':26}{intensity:8.0f}  {'memory' if intensity < ridge else 'compute'}")

# %% [markdown]
# The plan does this for every operator of a step. Look at a GPT of GPT-2's width on one H100. `bounds` says what the
# time is spent on. Compare its seconds with "FLOPs over peak": no real step is that fast.

# %%
knobs = ["layers=12", "width=768", "heads=12", "context=1024", "global_batch_tokens=8192", "precision=bf16-mixed"]
gpt2 = surefoot.plan(surefoot.load_recipe("gpt", knobs), on="h100-sxm")
print({bound: f"{seconds * 1e3:.1f} ms" for bound, seconds in gpt2.time.bounds.items()})
print(f"FLOPs over peak {gpt2.time.flops_only_seconds * 1e3:.1f} ms, planned {gpt2.time.seconds * 1e3:.1f} ms")
print(f"MFU {gpt2.time.flops_only_seconds / gpt2.time.seconds:.0%}")

# %% [markdown]
# The way *to* the GPU has a roof of its own. An H100 reads its own memory at 3,350 GB/s. The bus from the host carries
# 63 GB/s. So a tensor should cross it once, and early.
#
# You may read that a GPU is 5 to 20 times faster at a size of 1,000 and 50 to 100 times at 10,000. The trend is
# right: the work grows with the cube of the size and the traffic with its square. The factor depends on which CPU you
# compare.

# %%
for n in (1_000, 10_000):
    compute, move = 2 * n**3 / h100.dense_flops["fp32"], 2 * 4 * n * n / h100.host_bandwidth
    print(
        f"{n:6} x {n} in float32: compute {compute * 1e3:7.2f} ms, bring both operands {move * 1e3:7.2f} ms,", end=" "
    )
    print(f"{2 * n**3 / best_rate / (compute + move):,.0f} times faster than one core here")

# %% [markdown]
# ## Measure, change, measure again
#
# A napkin says what to expect. A profiler says what happened. Begin with a short run, note time per step, peak memory
# and tokens per second, change one thing, and measure again. Here is PyTorch's own profiler on two steps. `surefoot
# profile` puts such figures beside the plan, and `--trace FILE` writes a Chrome trace, as `export_chrome_trace` does.
# NVIDIA's Nsight shows the same at the level of single GPU kernels; use it last. The "GPU utilisation" of a monitor
# says that *some* kernel was running. It can read 100% at an MFU of 5%.

# %%
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.AdamW(model.parameters())
data, labels = torch.randn(256, 256), torch.randint(0, 10, (256,))


def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(data), labels).backward()
    optimizer.step()


step()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as seen:
    step()
    step()
ranking = sorted(seen.key_averages(), key=lambda event: -event.self_cpu_time_total)
total = sum(event.self_cpu_time_total for event in ranking)
for event in ranking[:4]:
    print(f"{event.key:32}{event.self_cpu_time_total / total:6.0%}")
model_flops = 6 * 256 * 1024 * 256 + 6 * 1024 * 10 * 256 - 2 * 256 * 1024 * 256
seen.export_chrome_trace(trace := str(Path(tempfile.mkdtemp()) / "trace.json"))
print(f"Chrome trace: {Path(trace).stat().st_size / 1024:.0f} KiB, for chrome://tracing or ui.perfetto.dev")
print(f"MFU against the best product here: {model_flops / seconds_of(step) / best_rate:.0%}")

# %% [markdown]
# ## Exercises
#
# **1.** Attention multiplies queries by keys, then weights by values. Write `attention_flops(batch, heads, context,
# size)` for both products in the forward pass, the full square, with heads of `size` numbers each.


# %% tags=["solution"]
def attention_flops(batch, heads, context, size):
    return 2 * (2 * batch * heads * context * context * size)


# %% tags=["check"]
counted = gpt2.steady.tally.under("flops/forward")["blocks.0.attention"]
assert attention_flops(8, 12, 1024, 64) == counted, (attention_flops(8, 12, 1024, 64), counted)

# %% [markdown]
# **2.** How many days do 8 billion parameters on 15 trillion tokens take on 512 H100s at an MFU of 40%?

# %% tags=["solution"]
eight_billion_days = 6 * 8e9 * 15e12 / (512 * 989e12 * 0.4 * 86400)

# %% tags=["check"]
expected = napkin(cluster("512xh100-sxm"), parameters=8e9, tokens=15e12, mfu=0.4).seconds / 86400
assert abs(eight_billion_days - expected) < 0.1, eight_billion_days

# %% [markdown]
# **3.** SGD with momentum keeps one running average instead of two. How many parameters fit on 8 x 80 GB then, in
# float32, without activations?

# %% tags=["solution"]
sgd_parameters = 8 * 80e9 / (4 + 4 + 4)

# %% tags=["check"]
assert abs(12 * sgd_parameters - 8 * 80e9) < 1, sgd_parameters

# %% [markdown]
# **4.** From which `n` on is the product of two `n x n` matrices in bf16 bound by compute on an A100 with 2 TB/s?
# Give the smallest `n`.

# %% tags=["solution"]
smallest_n = next(n for n in range(1, 10_000) if 2 * n**3 / (6 * n * n) >= 312e12 / 2e12)

# %% tags=["check"]
a100 = surefoot.datasheet("a100-sxm-80gb")
a100_ridge = a100.dense_flops["bf16"] / a100.memory_bandwidth
assert smallest_n / 3 >= a100_ridge > (smallest_n - 1) / 3, smallest_n

# %% [markdown]
# ## Next
#
# A GPU that waits for data does no FLOPs at all. [Chapter 8](08_data.py) feeds it.
