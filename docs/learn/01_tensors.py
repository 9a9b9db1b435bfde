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
# # 1. Tensors: shapes, views and what they cost
#
# This chapter shows what a tensor is, from the shape you see to the bytes below it.
#
# At its end you will know:
#
# - how to read a shape, and how shapes combine in a sum and in a matrix product;
# - what storage and strides are, and how to find any element by hand;
# - which operations only make a new view, and which copy;
# - what a copy costs in bytes and in time;
# - which shape bugs raise no error, and how to catch them.
#
# You need Python and a little linear algebra. You do not need a GPU. Run the cells from top to bottom.

# %%
import importlib.util
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import surefoot

torch.manual_seed(0)
torch.set_num_threads(1)  # the same numbers and fairer timings on any machine

# %% [markdown]
# ## Ranks and shapes
#
# A tensor is a grid of numbers. Its *rank* is the number of axes. Its *shape* is the length of each axis.
# A single number has rank 0 and the empty shape `()`.
#
# In language models you mostly meet rank 3: a batch of sequences, with one vector per token.
# Images come as rank 4: batch, channels, height, width.

# %%
examples = {
    "scalar": torch.tensor(3.14),
    "vector": torch.tensor([1, 2, 3]),
    "matrix": torch.randn(3, 4),
    "tokens as vectors": torch.randn(32, 128, 16),
    "images": torch.randn(8, 3, 32, 32),
}
for name, tensor in examples.items():
    print(
        f"{name:18} rank {tensor.ndim}  shape {tuple(tensor.shape)!s:18} {tensor.numel():7,} elements  {tensor.dtype}"
    )

# %% [markdown]
# ## Making tensors
#
# `torch.tensor` copies Python data. The other makers take a shape. Note what each one fills in:
#
# - `zeros` and `ones` say it in their name;
# - `randn` draws from the normal distribution with mean 0 and variance 1;
# - `rand` draws evenly from 0 up to, but not including, 1;
# - `empty` fills in nothing. You get the bytes that happened to be there.
#
# Use `empty` only if you write every element before you read one. The functions in `nn.init` do that for you.

# %%
made = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
print("from a list:", tuple(made.shape), made.dtype)
print("zeros      :", torch.zeros(4, 8).sum().item())
print("ones       :", torch.ones(4, 8).sum().item())
normal, even = torch.randn(100_000), torch.rand(100_000)
print(f"randn      : mean {normal.mean():+.2f}, standard deviation {normal.std():.2f}")
print(f"rand       : mean {even.mean():+.2f}, smallest {even.min():.2f}, largest {even.max():.2f}")
filled = nn.init.trunc_normal_(torch.empty(4, 8), std=1.0, a=-2.0, b=2.0)
print(f"empty, then filled: all within -2 and 2: {bool((filled.abs() <= 2).all())}")

# %% [markdown]
# ## Elementwise work and broadcasting
#
# `+ - * /`, `sqrt`, `exp` and similar functions work on each element separately. The result has the same shape.
# `rsqrt` is one divided by the square root. Norm layers use it all the time.

# %%
x = torch.tensor([1.0, 4.0, 9.0])
for name, result in {
    "pow(2)": x.pow(2),
    "sqrt": x.sqrt(),
    "rsqrt": x.rsqrt(),
    "x + x": x + x,
    "x / 0.5": x / 0.5,
}.items():
    print(f"{name:8} {[round(value, 4) for value in result.tolist()]}")

# %% [markdown]
# What if the shapes differ? Then torch lines them up from the *last* axis. Two lengths fit if they are equal or
# if one of them is 1 (or missing). The shorter one is then repeated, without a copy. This is broadcasting.

# %%
for left, right in [((3, 4), (4,)), ((3, 1), (1, 4)), ((8, 1, 5), (6, 5)), ((4, 1), (4,)), ((3, 4), (3,))]:
    try:
        print(f"{left!s:10} with {right!s:7} -> {tuple(torch.broadcast_shapes(left, right))}")
    except RuntimeError:
        print(f"{left!s:10} with {right!s:7} -> error")

# %% [markdown]
# Look at the fourth line. A column of 4 and a row of 4 make a 4 by 4 square. No error is raised.
# This is the first silent bug of the course: a model gives shape `(N, 1)`, the targets have shape `(N,)`, and the
# loss compares every answer with every target. `surefoot.watch` looks at the loop while it runs and says so.


# %%
def show(seen) -> None:
    """Prints what was found in a watched loop."""
    for finding in seen.findings.findings:
        print(f"{finding.severity} {finding.check}\n  seen   {finding.seen}\n  remedy {finding.remedy}")


inputs = torch.randn(64, 3)
targets = inputs @ torch.tensor([1.0, -2.0, 0.5])  # shape (64,)
line = nn.Linear(3, 1)
optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
with surefoot.watch(line, optimizer) as seen:
    for _ in range(5):
        optimizer.zero_grad()
        loss = ((line(inputs) - targets) ** 2).mean()  # (64, 1) - (64,)
        loss.backward()
        optimizer.step()
show(seen)

# %% [markdown]
# ## The contract of a matrix product
#
# A matrix of `m` by `n` times one of `n` by `p` gives `m` by `p`. The inner lengths must agree and then vanish. Extra
# axes on the left are a batch: torch computes one product for each entry.
#
# The weight below has only two axes. torch uses it for all 4 * 8 matrices of the batch.

# %%
print("16x32 @ 32x2        ->", tuple((torch.ones(16, 32) @ torch.ones(32, 2)).shape))
print("4x8x16x32 @ 32x2    ->", tuple((torch.ones(4, 8, 16, 32) @ torch.ones(32, 2)).shape))
print("2x5x3 @ 2x3x5       ->", tuple((torch.ones(2, 5, 3) @ torch.ones(2, 5, 3).transpose(-2, -1)).shape))
try:
    torch.ones(3, 4) @ torch.ones(3, 5)
except RuntimeError as error:
    print("3x4 @ 3x5           ->", error)

# %% [markdown]
# When a model fails with such an error, print the shape after each layer. Then find the first one you did not expect.

# %%
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
out = torch.randn(32, 1, 28, 28)
print(f"{'input':8} {tuple(out.shape)}")
for layer in model:
    out = layer(out)
    print(f"{type(layer).__name__:8} {tuple(out.shape)}")

# %% [markdown]
# Better than printing: state the contract in the code. One assert at each border costs nothing.
# It also tells the next reader what the axes mean.


# %%
def attention_scores(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    batch, length, width = queries.shape
    assert keys.shape == (batch, length, width), f"keys are {tuple(keys.shape)}, queries {tuple(queries.shape)}"
    return queries @ keys.transpose(-2, -1) / width**0.5  # (batch, length, length)


print(tuple(attention_scores(torch.randn(2, 5, 16), torch.randn(2, 5, 16)).shape))
try:
    attention_scores(torch.randn(2, 5, 16), torch.randn(2, 16, 5))
except AssertionError as error:
    print("caught:", error)

# %% [markdown]
# ## Axes with names
#
# `transpose(-2, -1)` does not say what it swaps. `torch.einsum` does. Each axis gets a letter. torch sums over every
# letter that is missing on the right. The library `einops` does the same with whole words.
#
# `jaxtyping` writes the axes into the type, as in `Float[Tensor, "batch length width"]`. You may read that this is
# only a comment. That is half true: Python does not check it, but `isinstance` does. A run-time type checker such as
# beartype checks it too. Both libraries are optional here. The cell skips them if they are not installed.

# %%
queries, keys = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
scores = torch.einsum("bqd,bkd->bqk", queries, keys)
print("einsum  :", tuple(scores.shape), torch.allclose(scores, queries @ keys.transpose(-2, -1), atol=1e-5))
if importlib.util.find_spec("einops"):
    from einops import rearrange

    heads = rearrange(queries, "batch length (heads width) -> batch heads length width", heads=4)
    print("einops  :", tuple(heads.shape))
if importlib.util.find_spec("jaxtyping"):
    from jaxtyping import Float

    print("jaxtyping, right shape:", isinstance(queries, Float[torch.Tensor, "batch length 16"]))
    print("jaxtyping, wrong shape:", isinstance(queries, Float[torch.Tensor, "batch length 99"]))

# %% [markdown]
# ## Reading parts of a tensor
#
# Indexing works as in Python lists, once per axis. Counting starts at 0. Negative numbers count from the end.
# A slice `1:3` leaves out its end.

# %%
grid = torch.arange(16).reshape(4, 4)
print("first row    ", grid[0].tolist())
print("last row     ", grid[-1].tolist())
print("rows 1 and 2 ", grid[1:3].tolist())
print("first column ", grid[:, 0].tolist())
print("one element  ", grid[1, 2].item())
print("where > 12   ", grid[grid > 12].tolist())

# %% [markdown]
# `triu` and `tril` keep the upper or lower triangle. A causal language model needs one of them: a token may look at
# itself and at earlier tokens only. Which triangle is right depends on what the rows mean. Some texts show `triu`,
# with row `i` for the token that is read. In PyTorch's attention, row `i` is the token that *asks*.
# Then the right one is `tril`. The cell proves it with torch's own causal attention.

# %%
q, k, v = (torch.randn(1, 4, 8) for _ in range(3))
causal = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
for name, mask in {"tril": torch.ones(4, 4).tril().bool(), "triu": torch.ones(4, 4).triu().bool()}.items():
    masked = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    print(name, mask.int().tolist(), "causal:", torch.allclose(masked, causal, atol=1e-6))

# %% [markdown]
# ## Storage and strides
#
# Memory has no rows. Below every tensor lies a flat run of bytes, its *storage*. The tensor itself is a small note:
# where it begins, its shape, its dtype, and its *strides*. A stride says how many elements to skip for one
# step along an axis. So element `[1, 2]` of a 4 by 4 matrix is at place `1 * 4 + 2 * 1 = 6`.

# %%
print("strides", grid.stride(), "-> element [1, 2] is at place", 1 * grid.stride(0) + 2 * grid.stride(1))
print("its value in the flat storage:", grid.flatten()[6].item(), "and by index:", grid[1, 2].item())
small = torch.zeros(4, 8)
print("4 x 8 float32:", small.numel(), "elements *", small.element_size(), "bytes =", small.untyped_storage().nbytes())
print("32 x 32 float32:", torch.zeros(32, 32).untyped_storage().nbytes(), "bytes")

# %% [markdown]
# ## Views
#
# If only the note changes, no number has to move. Rows, columns, slices, `transpose`, `view` and `expand` all make
# a new note on the old storage. We can prove it: compare the addresses of the storages. (You may see this done with
# `torch.equal` on two storages. That raises a `TypeError`: `torch.equal` takes tensors.)


# %%
def shares(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors lie in one storage."""
    return left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()


base = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
views = {
    "row": base[0],
    "column": base[:, 1],
    "view(3, 2)": base.view(3, 2),
    "transpose": base.t(),
    "expand": base[:1].expand(1000, 3),
    "rows by list": base[[0, 1]],
    "clone": base.clone(),
}
for name, tensor in views.items():
    print(f"{name:13} shape {tuple(tensor.shape)!s:10} strides {tensor.stride()!s:7} shares: {shares(base, tensor)}")

# %% [markdown]
# The expanded tensor has a thousand rows and a stride of 0. It needs no extra byte. If you index with a list of rows,
# torch copies them, because strides cannot describe an arbitrary list.
#
# ## The price of sharing
#
# Two tensors on one storage change together. This is useful, and it is a trap. Here the row is a view of one axis,
# so `row[0]` is a single number.
#
# NumPy arrays can share too: `torch.from_numpy` copies nothing. NumPy's default is float64, and so is the tensor.

# %%
row = base[0]
base[0, 0] = 100.0
print("row changed with base:", row.tolist())
array = np.array([1.0, 2.0, 3.0])
shared, copied = torch.from_numpy(array), torch.tensor(array)
array[0] = 99.0
print("from_numpy:", shared[0].item(), shared.dtype, "| torch.tensor:", copied[0].item())

# %% [markdown]
# ## Contiguous or not
#
# A tensor is *contiguous* if walking through it visits the storage in order. A transposed matrix is not: its next
# element lies a whole row away. `view` cannot describe every new shape of such a tensor. If it cannot, it raises an
# error. `reshape` always works: it gives a view where it can and a copy where it must. `contiguous` copies if needed.

# %%
turned = base.t()
print("contiguous:", turned.is_contiguous())
try:
    turned.view(2, 3)
except RuntimeError as error:
    print("view:", str(error).split(".")[0])
print("reshape shares:", shares(turned, turned.reshape(6)), "| of the untransposed:", shares(base, base.reshape(6)))

# %% [markdown]
# `view` and `transpose` can give the same shape with different numbers. Swapping them is a silent bug that
# surefoot knows as `view-in-place-of-transpose`.

# %%
print("base.t()       ", base.t().tolist())
print("base.view(3, 2)", base.view(3, 2).tolist())

# %% [markdown]
# ## What a copy costs
#
# A view costs a few hundred bytes of Python object, however large the tensor. A copy costs all bytes again,
# and the time to move them. The cell prints ratios: times differ from machine to machine, ratios much less.


# %%
def best_seconds(call: Callable[[], object], rounds: int = 5) -> float:
    """The quickest of a few calls: the others were disturbed."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


large = torch.randn(1500, 1500)
view_time = best_seconds(lambda: large.t())
copy_time = best_seconds(lambda: large.clone())
turn_time = best_seconds(lambda: large.t().contiguous())
print(f"a view adds 0 bytes, a copy {large.numel() * large.element_size():,} bytes")
print(f"time: copy / view = {copy_time / view_time:,.0f},  transposing copy / plain copy = {turn_time / copy_time:.1f}")

# %% [markdown]
# Both copies move the same bytes. The transposing one jumps around in memory, so it takes longer.
#
# ## Where a tensor lives
#
# A tensor also has a *device*. The words are `cpu`, `cuda` for NVIDIA and AMD GPUs and `mps` for Apple's. An operation
# needs all its tensors on the same device. `.to(device)` treats tensors and modules differently:
#
# - a tensor stays where it is, and you get a new one. You must keep the result;
# - a module moves itself.
#
# You can try this without a GPU. The device `meta` has shapes and no numbers.

# %%
picked = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
print("the best device here:", picked)
here, layer = torch.randn(2, 4), nn.Linear(4, 3)
here.to("meta")  # the result is lost
layer.to("meta")  # the module itself moves
print("tensor on", here.device, "| module on", layer.weight.device)
try:
    layer(here)
except RuntimeError as error:
    print("error:", str(error).split("\n")[0][:90])
assert here.to("meta").device == layer.weight.device, "input and weights must be on one device"
print("after here = here.to(device):", tuple(layer(here.to("meta")).shape))

# %% [markdown]
# An assert like the one above belongs at the start of a forward that you do not trust.
#
# ## Exercises
#
# **1.** A tensor has the shape `(32, 128, 512)`: batch, tokens, width. What is the shape (a) after a linear layer
# from 512 to 1024, (b) after the mean over the tokens, (c) after attention over the tokens? Give three tuples.

# %% tags=["solution"]
shapes = {"linear": (32, 128, 1024), "mean": (32, 512), "attention": (32, 128, 512)}

# %% tags=["check"]
with torch.device("meta"):
    hidden = torch.empty(32, 128, 512)
    assert tuple(nn.Linear(512, 1024)(hidden).shape) == shapes["linear"]
    assert tuple(hidden.mean(dim=1).shape) == shapes["mean"]
    attended = nn.functional.scaled_dot_product_attention(hidden, hidden, hidden)
    assert tuple(attended.shape) == shapes["attention"]

# %% [markdown]
# **2.** Write `place(strides, index)`: the place of an element in the storage, for any number of axes.


# %% tags=["solution"]
def place(strides: tuple[int, ...], index: tuple[int, ...]) -> int:
    return sum(stride * step for stride, step in zip(strides, index, strict=True))


# %% tags=["check"]
cube = torch.arange(60).reshape(3, 4, 5)
assert place(cube.stride(), (2, 1, 3)) == cube[2, 1, 3].item()
assert place(cube.permute(2, 0, 1).stride(), (4, 1, 2)) == cube.permute(2, 0, 1)[4, 1, 2].item()

# %% [markdown]
# **3.** Write `squared_error(output, target)` that gives the mean squared error of an output `(N, 1)` and a target
# `(N,)`, and that raises an `AssertionError` if the number of samples differs.


# %% tags=["solution"]
def squared_error(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    output = output.squeeze(-1)
    assert output.shape == target.shape, f"output {tuple(output.shape)}, target {tuple(target.shape)}"
    return ((output - target) ** 2).mean()


# %% tags=["check"]
assert squared_error(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 4.0])).item() == 2.0
try:
    squared_error(torch.zeros(3, 1), torch.zeros(1))
except AssertionError:
    pass
else:
    raise AssertionError("3 outputs and 1 target must not be compared")

# %% [markdown]
# **4.** How many bytes are *added* by each of these lines, for a float32 `x` of shape `(1000, 1000)`?
# `x[::2]`, `x.t()`, `x.t().contiguous()`, `x.reshape(-1)`, `x.t().reshape(-1)`. Give a list of five numbers.

# %% tags=["solution"]
added = [0, 0, 4_000_000, 0, 4_000_000]

# %% tags=["check"]
square = torch.zeros(1000, 1000)
made_from = [square[::2], square.t(), square.t().contiguous(), square.reshape(-1), square.t().reshape(-1)]
assert added == [0 if shares(square, each) else each.untyped_storage().nbytes() for each in made_from]

# %% [markdown]
# ## Next
#
# A float32 takes four bytes. What is in them, and what happens if you use only two or one?
# That is [chapter 2, dtypes bit by bit](02_dtypes.py).
