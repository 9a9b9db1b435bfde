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
# # 2. Dtypes bit by bit
#
# This chapter opens the bytes of a number and shows what each number format can and cannot hold.
#
# At its end you will know:
#
# - what the sign, exponent and fraction bits of a float do;
# - the range and the step size of float32, float16, bfloat16 and both kinds of float8;
# - when a number overflows, underflows or is rounded away;
# - what torch does when two dtypes meet;
# - how to go from a dtype to the bytes of a model.

# %%
import math

import torch
from torch import nn

import surefoot

torch.manual_seed(0)
torch.set_num_threads(1)

# %% [markdown]
# ## Three fields
#
# A float is a number in scientific notation, in base 2. One bit is the sign. The exponent bits say how large it is.
# The fraction bits (also called mantissa) say where it lies between two powers of two:
#
# value = sign * 2^(exponent - bias) * (1 + fraction)
#
# More exponent bits mean more *range*. More fraction bits mean more *resolution*. A format is a choice between them.
# The cell takes the raw bits of a number and cuts them into the three fields.

# %%
FIELDS = {  # exponent bits, fraction bits; one more bit is the sign
    torch.float64: (11, 52),
    torch.float32: (8, 23),
    torch.float16: (5, 10),
    torch.bfloat16: (8, 7),
    torch.float8_e4m3fn: (4, 3),
    torch.float8_e5m2: (5, 2),
}
AS_INT = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def fields(value: float, dtype: torch.dtype) -> tuple[str, str, str]:
    """The sign, exponent and fraction bits of a number."""
    tensor = torch.tensor(value, dtype=torch.float64).to(dtype)
    width = 8 * tensor.element_size()
    number = tensor.view(AS_INT[tensor.element_size()]).item() % 2**width
    bits, (exponent, _) = f"{number:0{width}b}", FIELDS[dtype]
    return bits[0], bits[1 : 1 + exponent], bits[1 + exponent :]


for dtype in FIELDS:
    sign, exponent, fraction = fields(-6.5, dtype)
    print(f"{name_of(dtype):14} sign {sign}  exponent {exponent:11}  fraction {fraction}")

# %% [markdown]
# The number is -1 * 2^2 * 1.625, and the fraction 0.625 is 101 in binary. All formats except the last hold it exactly.
# The fraction of `float8_e5m2` has room for only 10, so it stores -6.
#
# Now the other way: from bits back to the value. The bias is half of the exponent's range, so that small numbers
# get negative exponents. An exponent of all zeros is special. There the hidden 1 is dropped. These *subnormal*
# numbers fill the gap between the smallest normal number and zero.


# %%
def value_of(sign: str, exponent: str, fraction: str) -> float:
    """A finite float from its bits."""
    bias, power = 2 ** (len(exponent) - 1) - 1, int(exponent, 2)
    part = int(fraction, 2) / 2 ** len(fraction)
    size = 2.0 ** (1 - bias) * part if power == 0 else 2.0 ** (power - bias) * (1 + part)
    return -size if sign == "1" else size


for dtype in FIELDS:
    decoded, stored = value_of(*fields(0.1, dtype)), torch.tensor(0.1, dtype=torch.float64).to(dtype).item()
    print(f"0.1 as {name_of(dtype):14} is {decoded:.12f}   torch says {stored:.12f}")

# %% [markdown]
# No format holds 0.1 exactly, for the same reason that one third has no end in decimal.
#
# ## Range and resolution in one table
#
# All of this follows from the bit counts. The cell computes it and compares with `torch.finfo`.
#
# - *max* is the largest finite number.
# - *tiny* is the smallest normal one.
# - *least* is the smallest subnormal.
# - *eps* is the step from 1 to the next number.

# %%
print(f"{'format':14} {'bytes':>5} {'max':>10} {'tiny':>10} {'least':>10} {'eps':>10}")
for dtype, (exponent_bits, fraction_bits) in FIELDS.items():
    bias = 2 ** (exponent_bits - 1) - 1
    largest = 2.0**bias * (2 - 2.0**-fraction_bits)
    if dtype == torch.float8_e4m3fn:
        largest = 2.0 ** (bias + 1) * 1.75  # it has no infinity, so the highest exponent holds numbers too
    tiny, eps = 2.0 ** (1 - bias), 2.0**-fraction_bits
    info = torch.finfo(dtype)
    assert (largest, tiny, eps) == (info.max, info.tiny, info.eps)
    print(f"{name_of(dtype):14} {info.bits // 8:5} {largest:10.3g} {tiny:10.2g} {tiny * eps:10.2g} {eps:10.2g}")

# %% [markdown]
# Three things to remember from this table:
#
# - bfloat16 has the range of float32. It is the upper half of a float32, rounded: the same exponent, but only 7
#   fraction bits.
# - float16 has eight times finer steps than bfloat16 and far less range. You may read that it goes from 6e-5 to 6.5e4.
#   The lower end is *tiny*. Subnormal numbers reach down to 6e-8, with fewer good digits.
# - float64 is for science. Deep learning rarely needs it. The noise of a mini-batch is much larger than
#   float32's rounding.
#
# NVIDIA's TF32 is not a dtype that you can store. It is a way to multiply float32 numbers: 8 exponent bits, and
# only 10 fraction bits of each factor are read. The cell cuts the other 13 bits off, to show what is left.

# %%
pi = torch.tensor(3.14159265)
upper_half = (pi.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)
print("upper half of float32 pi:", upper_half.item(), "| bfloat16 pi:", pi.bfloat16().item())
third = torch.tensor(1 / 3)
as_tf32 = (third.view(torch.int32) >> 13 << 13).view(torch.float32)
print(f"one third as TF32     is off by {abs(as_tf32.double().item() - 1 / 3):.1e}")
for dtype in (torch.float16, torch.bfloat16):
    off = abs(torch.tensor(1 / 3).to(dtype).double().item() - 1 / 3)
    print(f"one third as {name_of(dtype):8} is off by {off:.1e}")

# %% [markdown]
# ## Overflow and underflow
#
# Above *max* a float becomes infinity. `float8_e4m3fn` has no infinity: torch 2.13 stops at 448 and says nothing. Below
# half of *least* a float becomes 0. Gradients are often that small. This is why float16 training multiplies the loss by
# a large number before backward and divides the gradients by it afterwards. bfloat16 does not need that.

# %%
for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2, torch.float8_e4m3fn):
    big, small, scaled = (torch.tensor(each).to(dtype).item() for each in (70_000.0, 1e-8, 1e-8 * 65536))
    print(f"{name_of(dtype):14} 70000 -> {big:<9g} 1e-8 -> {small:<12.4g} 1e-8 * 65536 -> {scaled:.4g}")

# %% [markdown]
# ## Rounded away
#
# Between 1 and 2 all steps are *eps*. Between 2 and 4 they are twice that, and so on. So there is a whole number from
# which adding 1 does nothing.

# %%
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    limit = 2.0 ** (FIELDS[dtype][1] + 1)
    after = (torch.tensor(limit, dtype=dtype) + 1).item()
    print(f"{name_of(dtype):9} {limit:>12,.0f} + 1 = {after:,.0f}")

# %% [markdown]
# This matters wherever many small numbers go into one large one. Sums do that, and so do weights: each update adds a
# little. The rule is: *what accumulates stays in float32*. That means weights, optimizer state, running averages and
# the inside of long sums. Activations live for one step. They can be bfloat16.

# %%
ones = torch.ones(4096, dtype=torch.bfloat16)
running = torch.zeros((), dtype=torch.bfloat16)
for one in ones:
    running = running + one
print("4096 ones, added one by one in bfloat16:", running.item())
print("the same with torch's sum, which adds in float32 inside:", ones.sum().item())

# %% [markdown]
# Watch the rule being broken. The model below is bfloat16 through and through, with a small learning rate.
# The loss is computed and the gradients are fine, but most weights do not move.

# %%
model = nn.Linear(64, 64).bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
inputs = torch.randn(32, 64, dtype=torch.bfloat16)
before = model.weight.detach().clone()
with surefoot.watch(model, optimizer) as seen:
    for _ in range(8):
        optimizer.zero_grad()
        model(inputs).float().square().mean().backward()
        optimizer.step()
for finding in seen.findings.findings:
    print(f"{finding.severity} {finding.check}\n  seen   {finding.seen}\n  remedy {finding.remedy}")
print(f"weights that never moved: {(model.weight == before).float().mean():.0%}")

# %% [markdown]
# ## When two dtypes meet
#
# In elementwise work torch picks a common dtype: floats win over integers, and wider wins over narrower. No 16-bit
# format holds both float16 and bfloat16, so together they give float32. A Python number never widens a float tensor,
# and neither does a float tensor of rank 0. A matrix product picks nothing: it raises an error.

# %%
pairs = {
    "int64 + float16": torch.ones(1, dtype=torch.int64) + torch.ones(1, dtype=torch.float16),
    "float16 + bfloat16": torch.ones(1, dtype=torch.float16) + torch.ones(1, dtype=torch.bfloat16),
    "float32 + float64": torch.ones(1) + torch.ones(1, dtype=torch.float64),
    "float32 + float64 of rank 0": torch.ones(1) + torch.tensor(1.0, dtype=torch.float64),
    "bfloat16 + 0.1": torch.ones(1, dtype=torch.bfloat16) + 0.1,
    "int64 / int64": torch.tensor([7]) / torch.tensor([2]),
}
for name, result in pairs.items():
    print(f"{name:28} -> {name_of(result.dtype)}")
try:
    torch.ones(2, 2) @ torch.ones(2, 2, dtype=torch.bfloat16)
except RuntimeError as error:
    print("float32 @ bfloat16           ->", error)

# %% [markdown]
# ## Integers
#
# Token numbers and class labels are integers. Keep them int64: embeddings and cross-entropy want it, and no number
# gets rounded. Small integer types wrap around without an error.
#
# int8 can also stand for floats. You store a *scale* and whole steps of it. That is quantisation. The largest
# error is half a step.

# %%
print(
    "200 as int8:", torch.tensor(200).to(torch.int8).item(), "| 65,537 as int16:", torch.tensor(65_537).short().item()
)
print("token 50,257 as bfloat16:", int(torch.tensor(50_257).bfloat16().item()))
weights = torch.randn(1000)
scale = weights.abs().max() / 127
steps = (weights / scale).round().to(torch.int8)
worst = (steps * scale - weights).abs().max()
print(f"int8 with a scale: 1,000 bytes for 4,000, worst error {worst:.4f}, half a step {scale / 2:.4f}")

# %% [markdown]
# ## Which hardware computes what
#
# A GPU has its own speed for each format. These are the makers' figures for dense products, in TFLOP/s. Two claims
# that you may meet need a correction. The first says that float8 runs only on the H100 and its successors. The RTX
# 4090 and the L40S belong to other product lines and have it too. So does AMD's MI300X. The second says that float32
# on an H100 is orders of magnitude slower. It is 15 times slower than bfloat16: about one order.

# %%
for name in ("a100-sxm-80gb", "l40s", "rtx-4090", "h100-sxm", "mi300x", "b200-sxm"):
    peaks = surefoot.datasheet(name).dense_flops
    row = "  ".join(f"{each} {peaks[each] / 1e12:6.0f}" for each in ("fp32", "bf16", "fp8") if each in peaks)
    print(f"{name:14} {row}   bf16 / fp32 = {peaks['bf16'] / peaks['fp32']:.0f}")

# %% [markdown]
# ## From dtypes to bytes
#
# Bytes are elements times the size of one. That is all. The first line of the cell is a 4 by 8 matrix. The second is
# one feed-forward matrix of GPT-3, 12,288 by 49,152. `surefoot.fake_world` gives it a shape and no memory. It is often
# quoted as 2.3 GB. In float32 it takes 2.42 GB, or 2.25 GiB: a GB is 10^9 bytes and a GiB is 2^30. Always say which
# one you mean.

# %%
with surefoot.fake_world():
    for shape in ((4, 8), (12_288, 49_152)):
        tensor = torch.empty(shape)
        size = tensor.numel() * tensor.element_size()
        print(f"{shape!s:16} {size:13,} bytes = {size / 1e9:.2f} GB = {size / 2**30:.2f} GiB")
parameters = 7e9
for label, each in {"float32": 4, "bfloat16": 2, "float8 or int8": 1}.items():
    print(f"weights of a 7B model in {label:14}: {parameters * each / 1e9:3.0f} GB")
print(f"training it with AdamW, all in float32: 4 + 4 + 8 = 16 bytes each: {parameters * 16 / 1e9:.0f} GB")
print(f"parameters that fill 8 GPUs of 80 GB at 16 bytes each: {8 * 80e9 / 16 / 1e9:.0f} billion")

# %% [markdown]
# The 16 bytes are weight, gradient and two running averages of AdamW. [Chapter 6](06_optimizers.py) measures them.
# Activations come on top: they are the subject of [chapter 3](03_autograd.py).
#
# ## A short guide
#
# | what | dtype | why |
# |---|---|---|
# | weights, optimizer state, running averages | float32 | they accumulate |
# | matrix products and activations in training | bfloat16 | range of float32, half of the bytes |
# | the same on a GPU without bfloat16 | float16 with loss scaling | small gradients would become 0 |
# | softmax, losses, norms, long sums | float32 | many small terms, large exponents |
# | token numbers, labels, indices | int64 | exact |
# | products on new GPUs, weights for inference | float8, int8 with scales | half the bytes again, needs care |
#
# Whatever you choose, write it down where the run is described. surefoot keeps the precision of a run beside its
# other settings.
#
# ## Exercises
#
# **1.** Write `step_at(value, dtype)`: the distance from a positive normal number to the next larger one.


# %% tags=["solution"]
def step_at(value: float, dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(value))


# %% tags=["check"]
for dtype, whole in ((torch.float32, torch.int32), (torch.float16, torch.int16), (torch.bfloat16, torch.int16)):
    for value in (0.75, 1.0, 3.0, 1000.0):
        here = torch.tensor(value, dtype=dtype)
        above = (here.view(whole) + 1).view(dtype)
        assert step_at(value, dtype) == above.double().item() - here.double().item()

# %% [markdown]
# **2.** A weight is exactly 0.5. An optimizer wants to add 0.001 in each update. In which of float32, float16 and
# bfloat16 will it never move? Give a set of names.

# %% tags=["solution"]
never_moves = {"bfloat16"}

# %% tags=["check"]
stuck = {
    name_of(dtype)
    for dtype in (torch.float32, torch.float16, torch.bfloat16)
    if (torch.tensor(0.5, dtype=dtype) + 0.001).item() == 0.5
}
assert never_moves == stuck

# %% [markdown]
# **3.** Write `model_bytes(parameters, weights, gradients, state)` for the bytes of training states. The last three are
# lists of dtypes that are kept per parameter. Use it for a 70B model with bfloat16 weights and gradients, and a
# float32 copy and two float32 averages as state. Put the answer, in GB, into `seventy`.


# %% tags=["solution"]
def model_bytes(parameters: float, weights: list, gradients: list, state: list) -> float:
    return parameters * sum(dtype.itemsize for dtype in [*weights, *gradients, *state])


seventy = model_bytes(70e9, [torch.bfloat16], [torch.bfloat16], [torch.float32] * 3) / 1e9

# %% tags=["check"]
assert model_bytes(1, [torch.float32], [torch.float32], [torch.float32, torch.float32]) == 16
assert seventy == 1120

# %% [markdown]
# **4.** `exp` overflows early in float16. From which whole number `n` on is `exp(n)` infinite in float16? And in
# bfloat16? Work it out from *max*, without trying all of them.

# %% tags=["solution"]
first_infinite = {
    name_of(dtype): math.floor(math.log(torch.finfo(dtype).max)) + 1 for dtype in (torch.float16, torch.bfloat16)
}

# %% tags=["check"]
for dtype in (torch.float16, torch.bfloat16):
    n = first_infinite[name_of(dtype)]
    results = torch.tensor([n - 1.0, n], dtype=torch.float64).exp().to(dtype)
    assert results.isinf().tolist() == [False, True]

# %% [markdown]
# ## Next
#
# You know what a number costs. Training makes many numbers that you never asked for.
# [Chapter 3](03_autograd.py) shows where they come from and where they live.
