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
# # 12. Debug, then export
#
# This chapter finds out why a model does not train, and then ships one that does. At its end you will know
#
# - how to look inside a model with hooks, without changing its code;
# - what vanishing and exploding gradients look like, and where a NaN comes from;
# - three tests that find most bugs: overfit one batch, try learning rates, watch the loop;
# - how to train a tiny GPT, export it, and run it where there is no recipe.
#
# Work in this order: start simple, make it work, scale it up, tune it last. A bug is cheapest in the smallest model.

# %%
import contextlib
import copy
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import TensorDataset

import surefoot
from surefoot.errors import SurefootError
from surefoot.recipes.fashion import convolutional, dense
from surefoot.training.lr_range import lr_range
from surefoot.training.overfit import overfit

F = nn.functional
torch.manual_seed(0)
torch.set_num_threads(1)
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Look inside: hooks
#
# A **hook** is a function that PyTorch calls when a module runs. It sees the inputs and the output. Use it to print
# shapes and statistics layer by layer. Remove it when you are done. Hooks run when you call `model(x)`. They do not
# run when you call `model.forward(x)`, and neither does much else, so always call the model.


# %%
@contextlib.contextmanager
def listening(model, hear):
    handles = [module.register_forward_hook(hear) for module in model if list(module.parameters())]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def tell(module, inputs, output):
    count = sum(parameter.numel() for parameter in module.parameters())
    print(f"  {type(module).__name__} {tuple(inputs[0].shape)} -> {tuple(output.shape)}, {count} parameters", end=", ")
    print(f"std {output.std():.2f}")


model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
x = torch.randn(32, 20)
with listening(model, tell):
    print("model(x)")
    model(x)
    print("model.forward(x) of one layer")
    model[0].forward(x)

# %% [markdown]
# A hook may also *replace* an output. Researchers do that to see which part of a model carries what: activation
# patching. For gradients, use `register_full_backward_hook`. The older `register_backward_hook` is deprecated: it
# gives wrong gradients for modules with several operations.

# %%
silenced = model[2].register_forward_hook(lambda module, inputs, output: torch.zeros_like(output))
without = model(x)
silenced.remove()
print(f"outputs move by {(model(x) - without).abs().mean():.3f} if the middle layer is silenced")

# %% [markdown]
# ## Vanishing and exploding gradients
#
# Print the norm of each parameter's gradient after a backward pass. Compare the first layer with the last one. A
# product of many factors below one vanishes; a product of many factors above one explodes. Sigmoids have slopes of at
# most a quarter.


# %%
def first_and_last(activation, gain):
    torch.manual_seed(0)
    layers = [part for _ in range(12) for part in (nn.Linear(32, 32), activation())]
    deep = nn.Sequential(*layers)
    for layer in deep[::2]:
        nn.init.normal_(layer.weight, std=gain / 32**0.5)
    deep(torch.randn(16, 32)).square().mean().backward()
    norms = [parameter.grad.norm().item() for name, parameter in deep.named_parameters() if name.endswith("weight")]
    return norms[0], norms[-1]


for name, activation, gain in (
    ("sigmoid", nn.Sigmoid, 1),
    ("relu, weights too large", nn.ReLU, 4),
    ("relu", nn.ReLU, 2**0.5),
):
    first, last = first_and_last(activation, gain)
    print(f"{name:24} gradient of the first layer {first:8.1e}, of the last {last:8.1e}")

# %% [markdown]
# Remedies: a better start (chapter 5), norms and residuals in the model, and clipping (chapter 9) for the odd batch.
#
# ## Where does the NaN come from?
#
# The loss is NaN, and every weight is NaN one step later. The usual advice is a lower learning rate and clipping.
# First find the place. This model takes the logarithm of numbers that may be negative. `surefoot train` stops
# *before* the update and names the first bad module and the samples.


# %%
class Logarithm(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.outer(self.inner(x).log())


def class_loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="sum"), len(batch[1])


def clouds(features=8, count=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, features, generator=generator)
    return TensorDataset(points, (points[:, 0] > 0).long())


def recipe_for(build, lr=0.1):
    return surefoot.Recipe(
        model=build,
        data=clouds,
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr),
        micro_batch_size=8,
        max_steps=5,
    )


try:
    surefoot.train(recipe_for(Logarithm), path=str(folder / "nan"))
except SurefootError as stopped:
    print(stopped)

# %% [markdown]
# The logarithm is not a module, so surefoot names the module after it. PyTorch's own **anomaly mode** finds the
# forward line of a bad backward. It is slow, so switch it off again. It also helps if you change a tensor in place
# that autograd still needs. That raises an error, but the error names the backward operation and not your line.
# Anomaly mode prints the line.

# %%
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    try:
        with torch.autograd.detect_anomaly():
            values = torch.ones(3, requires_grad=True).exp()
            squares = values * values
            values += 1  # exp and the product still need the old values
            squares.sum().backward()
    except RuntimeError as error:
        print(str(error).split(":")[0])
story = "\n".join(str(warning.message) for warning in heard)
print("the forward line that needs it:", [line.strip() for line in story.splitlines() if "squares = " in line])

# %% [markdown]
# ## Test 1: overfit one batch
#
# Any correct model can learn a handful of samples by heart. If yours cannot, do not tune it: something is broken. Here
# a `detach()` cuts the first layer off. `surefoot check RECIPE --overfit` does what this cell does.


# %%
class Cut(nn.Module):
    def __init__(self, cut):
        super().__init__()
        self.cut, self.inner, self.outer = cut, nn.Linear(8, 64), nn.Linear(64, 2)

    def forward(self, x):
        hidden = self.inner(x).relu()
        return self.outer(hidden.detach() if self.cut else hidden)


for cut in (False, True):
    tried = overfit(recipe_for(lambda cut=cut: Cut(cut)), max_steps=150)
    print(f"detach={cut}: {tried.verdict}; parameters that never get a gradient: {list(tried.wiring.detached)}")

# %% [markdown]
# The second line names the cause: parameters that change the loss and never get a gradient.
#
# ## Test 2: try learning rates
#
# Too high a rate diverges and too low a rate wastes steps. A **range test** raises the rate from tiny to huge in a
# hundred steps and looks where the loss falls fastest and where it explodes. On the command line: `surefoot check
# RECIPE --lr-range`.

# %%
found = lr_range(recipe_for(lambda: Cut(False)))
print(
    f"falls fastest at {found.steepest_lr:.2g}, diverges near {found.edge_lr or float('nan'):.2g}, ended: {found.ended}"
)

# %% [markdown]
# The best rate depends on the batch size and the model. Test again when they change.
#
# ## Test 3: watch the loop
#
# These four bugs raise no error. `surefoot.watch` runs your loop as it is, changes no number, and names them. For a
# script: `surefoot watch train.py`.


# %%
def loop(bug):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    points, labels = clouds(count=32).tensors
    losses = []
    model.train(bug != "eval mode")
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(6):
            if bug != "no zero_grad":
                optimizer.zero_grad()
            loss = F.cross_entropy(model(points), labels)
            if bug == "loss.item()":
                loss = torch.tensor(loss.item(), requires_grad=True)
            loss.backward()
            optimizer.step()
            losses.append(loss if bug == "keeps losses" else loss.item())
    return [finding.check for finding in seen.findings.findings]


for bug in ("no zero_grad", "eval mode", "loss.item()", "keeps losses", None):
    print(f"{bug!s:14}", loop(bug))

# %% [markdown]
# Lists of silent bugs often include tensors on two devices. That bug is not silent: PyTorch raises an error at once.
# The silent variant is a tensor that *stays* on the CPU and makes everything slow.
#
# Two more habits. Fix the seeds while you debug, and log every setting; a surefoot run keeps them in `run.json`. If
# two equal runs still differ, `torch.use_deterministic_algorithms(True)` makes PyTorch choose kernels that always
# give the same bits, or raise an error.


# %%
def few_steps():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    points, labels = clouds(count=32).tensors
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(points), labels).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


torch.use_deterministic_algorithms(True)
print("two runs, the same bits:", torch.equal(few_steps(), few_steps()))
torch.use_deterministic_algorithms(False)

# %% [markdown]
# ## Stop early, keep the best
#
# Watch the held-out loss. When it has not improved for a while, stop, and keep the *best* weights, not the last. Copy
# them. `model.state_dict()` holds references, so without a copy your "best" weights change with every step.

# %%
torch.manual_seed(0)
student = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 2))
optimizer = torch.optim.AdamW(student.parameters(), lr=0.02)
points, labels = clouds(count=200).tensors
labels = torch.where(torch.rand(200) < 0.2, 1 - labels, labels)  # a fifth of the labels is wrong
best, best_step, best_weights, by_reference = float("inf"), 0, None, None
for step in range(200):
    student.train()
    optimizer.zero_grad()
    F.cross_entropy(student(points[:60]), labels[:60]).backward()
    optimizer.step()
    student.eval()
    with torch.inference_mode():
        held_out = F.cross_entropy(student(points[60:]), labels[60:]).item()
    if held_out < best:
        best, best_step = held_out, step
        by_reference, best_weights = student.state_dict(), copy.deepcopy(student.state_dict())
    elif step - best_step >= 10:
        break
print(f"stopped at step {step}, best {best:.3f} at step {best_step}, last {held_out:.3f}")
for name, weights in (("kept by reference", by_reference), ("copied", best_weights)):
    student.load_state_dict(weights)
    right = (student(points[60:]).argmax(1) == labels[60:]).float().mean()
    print(f"{name:18} loss {F.cross_entropy(student(points[60:]), labels[60:]).item():.3f}, accuracy {right:.0%}")

# %% [markdown]
# Loss and accuracy need not agree. A model may be right as often as before, and far too sure when it is wrong.
#
# ## Train a tiny GPT
#
# Now all chapters come together. Two layers, bytes as tokens, Python's own standard library as text. It takes
# seconds.

# %%
knobs = ["layers=2", "width=64", "heads=2", "context=64", "global_batch_tokens=512", "max_steps=100", "lr=5e-3"]
recipe = surefoot.load_recipe("gpt", knobs)
losses = []
run = surefoot.train(recipe, path=str(folder / "run"), tell=lambda run, row: losses.append(row.loss))
print("settings:", run.knobs)
print(f"{run.status} after {len(losses)} steps: loss {losses[0]:.2f} to {sum(losses[-10:]) / 10:.2f}")

# %% [markdown]
# A loss of 5.5 is that of a blind guess among 256 bytes.
#
# ## Resume needs more than weights
#
# To *use* the model, weights are enough. To *resume*, you also need the optimizer's averages, the schedule's position
# and the step. `surefoot train` writes all of it and resumes to the same bits. By hand it looks like this.
# `map_location` puts tensors on a device that exists here; `weights_only=True` refuses to run code from the file.


# %%
def beginning():
    torch.manual_seed(0)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, step_size=4)


def advance(parts, steps):
    model, optimizer, scheduler = parts
    for _ in range(steps):
        optimizer.zero_grad()
        loss = class_loss(model, clouds().tensors)[0] / 64
        loss.backward()
        optimizer.step()
        scheduler.step()
    return loss.item()


parts = beginning()
advance(parts, 6)
torch.save([part.state_dict() for part in parts], folder / "checkpoint.pt")
straight = advance(parts, 3)
states = torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True)
for kept, name in ((1, "weights alone"), (3, "weights, optimizer, schedule")):
    parts = beginning()
    for part, state in zip(parts[:kept], states[:kept], strict=True):
        part.load_state_dict(state)
    print(f"{name:30} off by {abs(advance(parts, 3) - straight):.1e}")

# %% [markdown]
# ## Export
#
# Save a `state_dict`, never the pickled model: a pickle holds the path of your class and breaks when you move it.
# Safetensors files hold numbers alone, so reading one executes nothing. But they need your code to build the model.
# `torch.export` records the *program* too. It runs without your class.
#
# `torch.compile` and `torch.export` look alike but differ. Compile makes code in this process, with Python beside it
# for what it cannot record. Export must record everything, and writes a file.

# %%
exported = surefoot.export(str(folder / "run"))  # a built-in recipe needs no name here
print(f"weights {exported.weights_bytes} bytes, program {exported.program_bytes} bytes")
print("a batch of any size:", exported.dynamic_batch)
print(f"difference from the trained model: {exported.weights_difference}, {exported.program_difference}")

# %% [markdown]
# Now the proof. Another process loads the program. It imports PyTorch, and neither surefoot nor the recipe. The
# program takes a batch of any size; its context is fixed at 64 tokens.

# %%
prompt = torch.tensor([list(b"import os\n\n\ndef read(path):\n    with open(path) as file:\n        ret"[-64:])])
torch.save(prompt, folder / "prompt.pt")
ALONE = """
import sys, torch
program, prompt, answer = sys.argv[1:]
model = torch.export.load(program).module()
torch.save(model(torch.load(prompt)), answer)
print("surefoot loaded:", "surefoot" in sys.modules)
"""
files = [exported.program, str(folder / "prompt.pt"), str(folder / "answer.pt")]
print(subprocess.run([sys.executable, "-c", ALONE, *files], capture_output=True, text=True, check=True).stdout.strip())
rebuilt = recipe.model().eval()
missing = rebuilt.load_state_dict(
    load_file(exported.weights, device="cpu"), strict=False
)  # tied weights are saved once
with torch.inference_mode():
    apart = (rebuilt(prompt) - torch.load(folder / "answer.pt")).abs().max().item()
print(f"missing {missing.missing_keys}, unexpected {missing.unexpected_keys}; logits differ by {apart:.1e}")

# %% [markdown]
# `strict=False` loads what fits and returns the rest. Always read that list: a typo in a prefix loads *nothing*. With
# `torch.load`, pass `map_location` if the file was saved on another device.
#
# To predict, flip two switches: `model.eval()` for dropout and norms, `torch.inference_mode()` for autograd. To
# generate, predict a token, append it, repeat.


# %%
@torch.inference_mode()
def generate(model, tokens, count, temperature=0.8):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        logits = model(tokens[:, -64:])[:, -1] / temperature
        tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1, generator=generator)], dim=1)
    return tokens


print(repr(bytes(generate(rebuilt, prompt, 40)[0, prompt.shape[1] :].clamp(max=127).tolist()).decode()))

# %% [markdown]
# A hundred small steps make letters and spaces, not yet words. It is a start: raise `max_steps` and `width`, and plan
# first.
#
# **Smaller files.** Quantise weights to 8 bits: one scale for each row, and integers from -127 to 127.

# %%
small = copy.deepcopy(rebuilt)
with torch.no_grad():
    for weight in small.parameters():
        if weight.ndim == 2:
            scale = weight.abs().amax(dim=1, keepdim=True) / 127
            weight.copy_((weight / scale).round().to(torch.int8) * scale)
targets = prompt[:, 1:].flatten()
for name, each in (("float32", rebuilt), ("int8", small)):
    with torch.inference_mode():
        print(f"{name:8} loss {F.cross_entropy(each(prompt[:, :-1]).flatten(0, 1), targets).item():.4f}")

# %% [markdown]
# `surefoot export RUN --quantize int8` writes such weights and says what they cost on held-out data. For llama.cpp,
# `--format gguf --quantize Q4_K_M` goes below 5 bits: its own quantiser rounds groups of weights, and the export states
# the perplexity before and after. [Serve a model](../guide/serving.md) shows llama.cpp, vLLM and Ollama.
#
# **Where to next with a `.pt2` file?** AOTInductor compiles it to a library for servers. ExecuTorch runs it on
# phones. `torch.onnx.export(..., dynamo=True)` turns it into ONNX for other runtimes. TorchScript is the older way,
# superseded by export; TorchServe is no longer developed. `surefoot export` writes safetensors and `.pt2`; `--format`
# names others: `hf`, `onnx`, `aoti`, `gguf` and `pte`. It runs each file and compares it with the trained model.
#
# Hugging Face's models are called with keyword arguments. `torch.export` takes these as `kwargs`, and so does
# `surefoot export`.


# %%
class ByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, *, features):
        return self.head(features)


named = ByName()
program = torch.export.export(named, (), {"features": torch.ones(3, 4)}).module()
print("by keyword:", torch.equal(program(features=torch.ones(3, 4)), named(features=torch.ones(3, 4))))

# %% [markdown]
# **Fine-tuning** starts from such weights and not from noise. Freeze most of the model, or add small matrices beside
# large ones: LoRA. Only those get gradients and optimizer state.


# %%
class LowRank(nn.Module):
    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))  # begins as no change at all

    def forward(self, x):
        return self.layer(x) + x @ self.down.T @ self.up.T


tuned = copy.deepcopy(rebuilt).requires_grad_(False)
for block in tuned.blocks:
    block.attention.qkv = LowRank(block.attention.qkv)
trained = sum(parameter.numel() for parameter in tuned.parameters() if parameter.requires_grad)
print(f"{trained} of {sum(p.numel() for p in tuned.parameters())} parameters are trained")
print("unchanged at the start:", torch.equal(tuned(prompt), rebuilt(prompt)))

# %% [markdown]
# You need not write this for a large model. `surefoot train finetune model=ORG/NAME data=FILE` takes it by its name or
# from a folder, and your conversations or preferences as you have them. It trains with LoRA, with QLoRA on 4-bit
# weights and with other methods of PEFT, for `max_epochs`. Plan it first: `surefoot plan finetune ... --on rtx-4090`
# downloads the config alone. Then talk with the model: `surefoot chat RUN`. [Fine-tune](../guide/finetune.md) has the
# details.
#
# Transformers, PEFT, TRL, Axolotl and Unsloth do it too. `surefoot watch` checks their loops as it checks yours.
#
# ## Labs and words
#
# Three larger labs wait for you, in two recipes. `surefoot train fashion` classifies clothes with a dense network.
# With `network=convolutional` it passes 90% on the test images. `surefoot train sentiment` trains a small classifier
# of reviews. Copy one and change it.

# %%
for name, build in (("dense", dense), ("convolutional", convolutional)):
    print(f"fashion, {name}: {sum(p.numel() for p in build(256, 0.2).parameters()):,} parameters")
print(f"sentiment: {surefoot.plan(surefoot.load_recipe('sentiment')).parameters:,} parameters")

# %% [markdown]
# | word | meaning |
# |---|---|
# | tensor, dtype | an array of numbers; the format of each |
# | activation | what a forward pass keeps for the backward pass |
# | gradient | how the loss changes with a parameter |
# | step, micro-batch | one update; a part of its batch |
# | FLOPs, FLOP/s, MFU | work; speed; the share of the peak that does model work |
# | token | the integer that stands for a piece of text |
# | rank | one process of a run |
# | all-reduce | adds up a tensor over ranks, for all of them |
# | shard | a rank's part of a tensor |
# | recompute | forget activations and make them again |
# | checkpoint | a saved state to resume from |
# | export | a program and weights that need no recipe |
#
# ## Exercises
#
# **1.** Write `first_bad(model, x)`: the name of the first module without children whose output is not finite, or
# `None`.


# %% tags=["solution"]
def first_bad(model, x):
    bad = []
    handles = [
        module.register_forward_hook(lambda m, i, out, name=name: None if out.isfinite().all() else bad.append(name))
        for name, module in model.named_modules()
        if not list(module.children())
    ]
    model(x)
    for handle in handles:
        handle.remove()
    return bad[0] if bad else None


# %% tags=["check"]
assert first_bad(Logarithm(), torch.randn(4, 8)) == "outer"
assert first_bad(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.randn(4, 8)) is None
probe = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
first_bad(probe, torch.randn(4, 8))
assert not probe[0]._forward_hooks, "remove the hooks"

# %% [markdown]
# **2.** Write `train_step(model, optimizer, x, y)`: one correct step that returns the loss as a float. `watch` will
# look.


# %% tags=["solution"]
def train_step(model, optimizer, x, y):
    model.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


# %% tags=["check"]
torch.manual_seed(0)
learner = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2)).eval()
teacher = torch.optim.SGD(learner.parameters(), lr=0.3)
features, answers = clouds(count=32, seed=1).tensors
with surefoot.watch(learner, teacher) as seen:
    history = [train_step(learner, teacher, features, answers) for _ in range(12)]
assert isinstance(history[0], float)
assert history[-1] < history[0]
assert not seen.findings.findings, [finding.check for finding in seen.findings.findings]

# %% [markdown]
# **3.** Write `stop_at(losses, patience)`: the index at which early stopping ends, if it stops after `patience`
# losses in a row that are no better than the best. If it never stops, the last index.


# %% tags=["solution"]
def stop_at(losses, patience):
    best = 0
    for step, loss in enumerate(losses):
        if loss < losses[best]:
            best = step
        elif step - best >= patience:
            return step
    return len(losses) - 1


# %% tags=["check"]
assert stop_at([5, 4, 3, 3.5, 3.6, 2], 2) == 4
assert stop_at([5, 4, 3, 2, 1], 2) == 4
assert stop_at([1, 2, 3, 4], 3) == 3

# %% [markdown]
# **4.** Write `greedy(model, tokens, count)`: like `generate`, but always take the most likely token.


# %% tags=["solution"]
@torch.inference_mode()
def greedy(model, tokens, count):
    for _ in range(count):
        tokens = torch.cat([tokens, model(tokens[:, -64:])[:, -1:].argmax(-1)], dim=1)
    return tokens


# %% tags=["check"]
longer = greedy(rebuilt, prompt, 5)
assert longer.shape == (1, prompt.shape[1] + 5)
assert torch.equal(longer[:, : prompt.shape[1]], prompt)
assert longer[0, prompt.shape[1]] == rebuilt(prompt)[0, -1].argmax()

# %% [markdown]
# ## Next
#
# This is the end of the course, and the start of your own run. Write a recipe, plan it, check it, train it. The
# [overview](../guide/all-of-surefoot.md) has everything on one page.
