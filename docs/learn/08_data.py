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
# # 8. Data: from files to batches
#
# This chapter follows a sample from a file to the model. At its end you will know
#
# - what a `Dataset`, a `DataLoader`, a collate function and a worker do;
# - where random numbers come from in a loader, and how two workers end up with the same ones;
# - what padding costs and how packing avoids it;
# - how a byte-pair encoding is made, by hand;
# - how to hold out data that stays held out;
# - what waiting for data looks like, and how many workers you need.

# %%
import csv
import hashlib
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

import surefoot
from surefoot.data.first_fit import first_fit
from surefoot.data.inspect import inspect_batch
from surefoot.data.order import sample_ids

torch.manual_seed(0)
torch.set_num_threads(1)
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## A data set is two methods
#
# `__len__` says how many samples there are. `__getitem__` returns one of them. That is the whole contract. Here is
# one that reads a table of reviews from a CSV file. It reads the file once, when it is made, and keeps tensors.
# Labels are integers (`int64`), because they are indices. Features are floats.

# %%
rng = np.random.default_rng(0)
with (folder / "reviews.csv").open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["length", "stars", "label"])
    writer.writerows([round(rng.uniform(), 3), round(rng.uniform(), 3), int(rng.integers(2))] for _ in range(10))


class Reviews(Dataset):
    def __init__(self, path):
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        self.labels = torch.tensor([int(row.pop("label")) for row in rows])
        self.features = torch.tensor([[float(value) for value in row.values()] for row in rows])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.features[index], self.labels[index]


reviews = Reviews(folder / "reviews.csv")
print(len(reviews), reviews[0], reviews.labels.dtype)

# %% [markdown]
# ## A loader makes batches
#
# A `DataLoader` asks for samples one by one and stacks them. `shuffle=True` draws a new order in every pass. Ten
# samples in batches of four leave two over. With `drop_last=True` they are dropped. Drop them in training if a tiny
# batch would disturb you, and never in evaluation, where every sample must count.

# %%
for drop_last in (False, True):
    loader = DataLoader(
        reviews, batch_size=4, shuffle=True, drop_last=drop_last, generator=torch.Generator().manual_seed(1)
    )
    print(f"drop_last={drop_last}: sizes", [len(labels) for _, labels in loader])

# %% [markdown]
# ## Give each kind of chance its own seed
#
# Weights, order, dropout and augmentation all draw random numbers. Give each its own generator. Then you can keep the
# order and change the weights, or the other way round. The order above comes from a generator of its own. Make it
# again and you get the same order; use it for a second pass and you get another one.

# %%
order = TensorDataset(torch.arange(8))
generator = torch.Generator().manual_seed(7)
loader = DataLoader(order, batch_size=8, shuffle=True, generator=generator)
first, second = next(iter(loader))[0].tolist(), next(iter(loader))[0].tolist()
generator.manual_seed(7)
print("pass 1", first, "\npass 2", second, "\nagain ", next(iter(loader))[0].tolist())

# %% [markdown]
# surefoot goes one step further: its order is a *function* of the seed and the position. Nothing has to be saved to
# resume in the middle of a pass.

# %%
print("positions 0 to 7:", sample_ids(8, 7, 0, 8).tolist(), " positions 5 to 7 alone:", sample_ids(8, 7, 5, 3).tolist())

# %% [markdown]
# ## Workers and their random numbers
#
# With `num_workers=2`, two other processes call `__getitem__`. Meanwhile the loop goes on computing. Each worker is a
# copy of your process, and that raises a question: do copies draw the same random numbers?
#
# You will read that they do, and that you must seed NumPy in `worker_init_fn`. That was true for old releases. Today
# PyTorch gives every worker its own seed for `torch`, `random` and `numpy.random`. It cannot reach a generator that
# *you* keep in the data set. That one is copied as it is. Watch both.


# %%
class Noisy(Dataset):
    def __init__(self):
        self.own = np.random.default_rng(0)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.utils.data.get_worker_info().id, np.random.random(), self.own.random()


def draws(**options):
    workers = DataLoader(Noisy(), batch_size=None, num_workers=2, multiprocessing_context="fork", **options)
    return [(worker, round(shared, 3), round(own, 3)) for worker, shared, own in workers]


def own_seed(worker):
    info = torch.utils.data.get_worker_info()
    info.dataset.own = np.random.default_rng(info.seed % 2**32)


print("worker, numpy.random, own generator")
print(*draws(), sep="\n")
print("with worker_init_fn:", *draws(worker_init_fn=own_seed), sep="\n")

# %% [markdown]
# In the first table the last column repeats itself: two workers made the same "random" noise. `surefoot check` calls
# this [shared-worker-randomness](../checks/samples/shared-worker-randomness.md). Better still, make the noise depend
# on the sample's index and the epoch. Then the number of workers does not matter at all.
#
# ## Waiting for data
#
# Here each sample takes 3 ms to make, as if a file were read. The model is small, so the step is quick. Measure the
# time between asking for a batch and getting it.


# %%
class Slow(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        time.sleep(0.003)
        return torch.full((64,), float(index)), index % 2


model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def one_pass(loader):
    """Seconds of a pass, and the share of them that was spent waiting."""
    start, waited = time.perf_counter(), 0.0
    batches = iter(loader)
    for _ in range(len(loader)):
        asked = time.perf_counter()
        features, labels = next(batches)
        waited += time.perf_counter() - asked
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features / 96), labels).backward()
        optimizer.step()
        time.sleep(0.012)  # stands for a larger model
    return time.perf_counter() - start, waited / (time.perf_counter() - start)


for workers in (0, 1, 2):
    more = {"prefetch_factor": 2, "persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
    loader = DataLoader(Slow(), batch_size=8, num_workers=workers, **more)
    passes = [one_pass(loader) for _ in range(2)]
    print(f"{workers} workers: waited {passes[0][1]:.0%} of the first pass, {passes[1][1]:.0%} of the second")
    del loader

# %% [markdown]
# - `num_workers=0`: you make the batch yourself, and the model waits.
# - `prefetch_factor=2`: each worker keeps two batches ready, so `num_workers * prefetch_factor` are waiting in
#   memory.
# - `persistent_workers=True`: the workers live on. Otherwise they are stopped and started for every pass. That costs
#   seconds if a data set is large to copy or slow to import.
#
# How many workers do you need? With n workers, each one has the time of n steps to make a batch. So divide the seconds
# that it takes to make a batch by the seconds of a step, and round up. More workers than that only eat memory.
# `surefoot profile` measures both and reports the share that a step spends waiting; `train` raises an alarm called
# `starving`.

# %%
starved = surefoot.Recipe(
    model=lambda: nn.Linear(64, 2),
    data=Slow,
    loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0] / 96), batch[1]),
    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    micro_batch_size=8,
    max_steps=4,
)
print(f"surefoot profile: {surefoot.profile(starved, timed_steps=3).waiting:.0%} of a step is spent waiting for data")

# %% [markdown]
# One more wait lies between the host and the GPU. Two switches hide it, and you need both. `pin_memory=True` puts
# batches in memory that the GPU can read by itself. `batch.to("cuda", non_blocking=True)` starts the copy and does
# not wait for it.

# %%
if torch.cuda.is_available():
    batch = torch.empty(8, 64).pin_memory()
    print("pinned:", batch.is_pinned(), batch.to("cuda", non_blocking=True).device)
else:
    print("no GPU here, so there is nothing to pin for")

# %% [markdown]
# ## Collate: how samples become a batch
#
# Sentences differ in length, and a tensor is a rectangle. A **collate** function gets a list of samples and returns
# the batch. The usual one pads every sentence to the longest. Padding is computed and then thrown away.

# %%
lengths = np.clip(np.random.default_rng(1).lognormal(3.0, 0.7, 512), 2, 127).astype(int)
sentences = [torch.randint(1, 100, (int(length),)) for length in lengths]


def pad(samples):
    tokens = pad_sequence(samples, batch_first=True, padding_value=0)
    return tokens, tokens != 0


def padding_share(batches):
    masks = [mask for _, mask in batches]
    return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)


plain = padding_share(DataLoader(sentences, batch_size=16, collate_fn=pad))
sorted_ = padding_share(DataLoader(sorted(sentences, key=len), batch_size=16, collate_fn=pad))
rows = list(first_fit(((0, int(length), 0) for length in lengths), 128))
packed = 1 - int(lengths.sum()) / (len(rows) * 128)
print(
    f"padding: batches as they come {plain:.0%}, sorted by length {sorted_:.0%}, packed into rows of 128 {packed:.1%}"
)

# %% [markdown]
# **Packing** puts whole sentences side by side in rows of one length. Each must see only itself, so the attention
# mask and the positions begin anew with every sentence. `surefoot train gpt corpus=... packed=true` does that.
#
# ## Tokens: a byte-pair encoding by hand
#
# A language model reads integers. Bytes would do, but sequences get long. A **byte-pair encoding** (BPE) starts from
# bytes. It finds the most frequent pair of neighbours, gives that pair a new number, and repeats. Each repetition is
# one *merge*. The list of merges is the tokenizer. (Real ones first cut the text into words, so that no token spans
# two.)

# %%
text = "the cat sat on the mat. the rat sat on the cat. that cat sat that rat on that mat. " * 4


def merged(ids, pair, new):
    out, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def learn(text, count):
    ids, merges = list(text.encode()), {}
    for new in range(256, 256 + count):
        pair = max(sorted(Counter(pairwise(ids)).items()), key=lambda item: item[1])[0]
        merges[pair] = new
        ids = merged(ids, pair, new)
    return ids, merges


def spell(id_, merges):
    parts = {new: pair for pair, new in merges.items()}
    return bytes([id_]) if id_ < 256 else spell(parts[id_][0], merges) + spell(parts[id_][1], merges)


ids, merges = learn(text, 12)
print("new tokens:", [spell(new, merges).decode() for new in merges.values()])
print(f"{len(text)} bytes became {len(ids)} tokens: {len(text) / len(ids):.1f} bytes per token")
assert b"".join(spell(id_, merges) for id_ in ids).decode() == text

# %% [markdown]
# Real vocabularies have 32,000 to 200,000 tokens and about four bytes of English per token. Tokens are the currency
# of training: 6ND counts them, budgets count them. `surefoot data tokenize` does this for real text. It hashes every
# page and splits off the held-out part.

# %%
(folder / "texts").mkdir()
for number in range(12):
    (folder / "texts" / f"{number}.txt").write_text(f"story {number}: {text}")
for words in (
    f"tokenize {folder / 'texts'} --to {folder / 'corpus'} --tokenizer bytes --held-out 0.25 --workers 1",
    f"count {folder / 'corpus'} --context 64 --max-tokens 6400 --parameters 1000",
):
    told = subprocess.run([sys.executable, "-m", "surefoot", "data", *words.split()], capture_output=True, text=True)
    print(told.stdout or told.stderr)

# %% [markdown]
# The second table is a **token ledger**. It says what the run does with each token: `valid` tokens counted in the
# loss, `repeated` tokens counted again, and `cropped` tokens did not fill a window.
#
# ## Corpora that do not fit in memory
#
# `np.memmap` maps a file into memory. Only the pages that you touch are read. LLaMA's training data is quoted as 2.8
# TB. That is 1.4T tokens of two bytes, since a vocabulary of 32,000 fits in `uint16`. 15T tokens of a vocabulary of
# 128,000 need four bytes each, 60 TB.
#
# One example you will meet maps a `.npy` file with `np.memmap(file, dtype=np.int32)`. Try it. A `.npy` file begins
# with a header, and the header becomes tokens.

# %%
print(f"{2.8e12 / 2 / 1e12:.1f}T tokens of 2 bytes; 15T tokens of 4 bytes are {15e12 * 4 / 1e12:.0f} TB")
np.save(folder / "tokens.npy", np.arange(1000, dtype=np.int32))
print("memmap of .npy:", np.memmap(folder / "tokens.npy", dtype=np.int32, mode="r")[:4], "<- the header")
print("np.load, mapped:", np.load(folder / "tokens.npy", mmap_mode="r")[:4])

# %% [markdown]
# A window of tokens and the same window one ahead make a training sample. If you are off by one here, the model learns
# to copy.

# %%
tokens = np.load(folder / "tokens.npy", mmap_mode="r")
starts = (0, 100, 200)
right = [np.stack([tokens[s : s + 16] for s in starts]), np.stack([tokens[s + 1 : s + 17] for s in starts])]
wrong = [right[0], right[0]]
for name, batch in (("right", right), ("wrong", wrong)):
    print(name, [f"{finding.check}: {finding.seen}" for finding in inspect_batch(batch, vocabulary=1000)])

# %% [markdown]
# ## Held out means held out
#
# Judge a model on data it has never seen. A random split leaks if the same text occurs twice: one copy lands on each
# side. Split by a **hash of the text** instead. Equal texts get equal hashes, so they stay together. The split also
# stays the same when you add data.
#
# **Augmentation** makes training samples vary: crops, noise, flips. It belongs to the training side alone.

# %%
documents = [f"document {number % 80}" for number in range(100)]  # twenty of them occur twice


def held_out(text):
    return hashlib.sha256(text.encode()).digest()[0] < 256 // 5


chance = np.random.default_rng(0).random(100) < 0.2
by_chance = {d for d, out in zip(documents, chance, strict=True) if out} & {
    d for d, out in zip(documents, chance, strict=True) if not out
}
by_hash = {d for d in documents if held_out(d)} & {d for d in documents if not held_out(d)}
print(f"documents on both sides: {len(by_chance)} by chance, {len(by_hash)} by hash")

# %% [markdown]
# ## Exercises
#
# **1.** Write `encode(text, merges)`: bytes first, then every merge in the order in which it was learned.


# %% tags=["solution"]
def encode(text, merges):
    ids = list(text.encode())
    for pair, new in merges.items():
        ids = merged(ids, pair, new)
    return ids


# %% tags=["check"]
assert encode(text, merges) == ids
assert len(encode("the cat", merges)) < 7
assert b"".join(spell(id_, merges) for id_ in encode("a dog", merges)) == b"a dog"

# %% [markdown]
# **2.** Write `workers_needed(batch_seconds, step_seconds)`: the fewest workers that keep the model busy.


# %% tags=["solution"]
def workers_needed(batch_seconds, step_seconds):
    return int(-(-batch_seconds // step_seconds))


# %% tags=["check"]
assert [workers_needed(*case) for case in ((0.3, 0.1001), (0.05, 0.1), (0.25, 0.1))] == [3, 1, 3]

# %% [markdown]
# **3.** A corpus has 2 trillion tokens and a vocabulary of 50,257. How many bytes does it take in the smallest
# unsigned integer type that holds every id?

# %% tags=["solution"]
corpus_bytes = 2e12 * 2

# %% tags=["check"]
assert corpus_bytes == 2e12 * np.min_scalar_type(50_257 - 1).itemsize, corpus_bytes

# %% [markdown]
# **4.** Write a collate function `pad_to(samples, multiple)` that pads to the next multiple of `multiple`, with
# zeros. GPUs like such shapes, and a compiled model sees fewer of them.


# %% tags=["solution"]
def pad_to(samples, multiple):
    tokens = pad_sequence(samples, batch_first=True)
    return nn.functional.pad(tokens, (0, -tokens.shape[1] % multiple))


# %% tags=["check"]
batch = pad_to([torch.ones(5, dtype=torch.long), torch.ones(9, dtype=torch.long)], 8)
assert batch.shape == (2, 16), batch.shape
assert batch.sum() == 14
assert pad_to([torch.ones(8)], 8).shape == (1, 8)

# %% [markdown]
# ## Next
#
# The batch has arrived. [Chapter 9](09_precision.py) decides in which number format it is computed, and how many
# batches make one step.
