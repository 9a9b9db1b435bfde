"""Out of memory under `--memory-limit`: train and watch say what held the memory, and train names what fits."""

import gc
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from surefoot.cli import main as cli
from surefoot.costs.out_of_memory import cause_of
from surefoot.debug.memory.out_of_memory import asked_bytes, is_out_of_memory
from surefoot.meters import allocator
from surefoot.planning.scripts import fitting_arguments
from surefoot.records.explanation import Place
from surefoot.records.out_of_memory import Batch, Held, Keeper, LiveTensor, OutOfMemory, Setting, read_out_of_memory

needs_compiler = pytest.mark.skipif(not allocator.available(), reason="no C++ compiler")
SCRIPT = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for rows in SIZES:
    x = torch.ones(rows, 64)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
KEPT = """
import torch
from torch import nn

model = nn.Linear(64, 4096)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(100):
    out = model(torch.ones(16, 64))
    losses.append(out.square())
    out.mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FORWARDS = """
import torch
from torch import nn

class Net(nn.Sequential):
    def forward(self, x):
        return super().forward(x)

model = Net(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 1))
total = 0.0
for _ in range(100):
    total = total + model(torch.ones(64, 64)).mean()
"""
WITH_OPTIONS = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=1024)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--elsewhere", action="store_true")
args = parser.parse_args()
model = nn.Sequential(nn.Linear(64, args.width), nn.ReLU(), nn.Linear(args.width, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.ones(args.rows, 64)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RECIPE = """
import torch
from torch import nn
from surefoot import Recipe

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(32, 512), nn.Linear(512, 4)

    def forward(self, x):
        return self.second(self.first(x).relu())

def loss_of(model, batch):
    return model(batch).square().mean()

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        return torch.full((32,), number / 64)

def net() -> Recipe:
    return Recipe(
        model=Net,
        data=Rows,
        loss=loss_of,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        micro_batch_size=64,
        max_steps=2,
    )
"""


@pytest.fixture
def run_command(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("SUREFOOT_RAISE", raising=False)
    monkeypatch.chdir(tmp_path)  # each script has a name of its own: Python and surefoot remember lines by file
    allocator.install()

    def run(*words: str, kib: int = 0) -> tuple[int, str]:
        gc.collect()  # what earlier tests left must not be freed in the middle
        base = allocator.live_bytes()
        limit = ("--memory-limit", f"{base // 1024 + kib}KiB") if kib else ()
        monkeypatch.setattr(sys, "argv", ["surefoot", *words, *limit])
        code = 0
        try:
            cli.main()
        except SystemExit as left:
            code = left.code or 0
        seen = capsys.readouterr()
        return code, " ".join((seen.err + seen.out).split())

    return run


@needs_compiler
def test_watch_names_the_guilty_batch_the_line_and_the_accounts(run_command):
    Path("batches.py").write_text(SCRIPT.replace("SIZES", "[16, 16, 16, 1024]"))
    code, said = run_command("watch", "batches.py", "--run", "run", kib=1500)
    assert code == 1
    assert "torch.OutOfMemoryError: Tried to allocate 1048576 bytes" in said
    assert "surefoot/" not in said.partition("Explained")[0]
    assert "Explained (batches.py:9): out of memory in forward of `1` of step 4: 1.00 MiB were asked for" in said
    assert "This batch is float32[1024, 64]. Most of the 3 steps before had float32[16, 64]" in said
    record = read_out_of_memory(Path("run"))
    assert record.by_account()["parameters"] == 4 * (64 * 256 + 256 + 256 * 8 + 8)
    assert record.by_account()["activations"] >= 1024 * 256 * 4
    largest = record.largest[0]
    assert (largest.account, largest.tensor, largest.place.line) == ("activations", "float32[1024, 256]", 9)
    assert sum(record.by_account().values()) >= record.live_bytes - record.outside_bytes
    code, again = run_command("explain", "run")
    assert (code, "out of memory in forward of `1` of step 4" in again) == (0, True)
    code, report = run_command("report", "run")
    assert (code, "out of memory in forward of `1` of step 4" in report) == (0, True)


@needs_compiler
def test_batches_that_grow_are_named_with_the_line_that_makes_them(run_command):
    Path("growing.py").write_text(SCRIPT.replace("SIZES", "range(16, 10_000, 64)"))
    code, said = run_command("watch", "growing.py", kib=2000)
    assert code == 1
    assert "The batches grow: float32[16, 64] at first" in said
    assert "growing.py:8 x = torch.ones(rows, 64)" in said


@needs_compiler
def test_a_larger_batch_of_an_evaluation_leads_to_its_loader(run_command):
    source = (
        SCRIPT.replace("SIZES", "[16, 16, 16]")
        + """
def evaluate(loader):
    with torch.no_grad():
        for (x,) in loader:
            model(x)

rows = torch.utils.data.TensorDataset(torch.ones(1024, 64))
tests = torch.utils.data.DataLoader(rows, batch_size=1024)
evaluate(tests)
"""
    )
    Path("testing.py").write_text(source)
    code, said = run_command("watch", "testing.py", kib=1800)
    assert code == 1
    assert "This batch is float32[1024, 64]. Most of the 3 steps before had float32[16, 64]" in said
    assert "testing.py:20 tests = torch.utils.data.DataLoader(rows, batch_size=1024)" in said


@needs_compiler
def test_a_script_that_fits_ends_as_without_a_limit(run_command):
    Path("fitting.py").write_text(SCRIPT.replace("SIZES", "[16, 16, 16]"))
    assert run_command("watch", "fitting.py", kib=2000)[0] == run_command("watch", "fitting.py")[0] == 0


@needs_compiler
def test_tensors_that_earlier_steps_left_are_the_cause(run_command):
    Path("keeping.py").write_text(KEPT)
    code, said = run_command("watch", "keeping.py", kib=6000)
    assert code == 1
    assert "earlier steps: `losses` keeps" in said
    assert "Do not store these tensors in `losses`" in said
    assert "keeping.py:9 out = model(torch.ones(16, 64))" in said  # the graph of what line 10 keeps
    assert "keeping.py:10 losses.append(out.square())" in said


@needs_compiler
def test_outputs_that_an_object_keeps_are_named_by_its_attribute(run_command):
    source = KEPT.replace("losses = []", "class Log:\n    def __init__(self):\n        self.seen = {}\nlog = Log()")
    source = source.replace("for _ in", "for step in").replace("losses.append(out.square())", "log.seen[step] = out")
    Path("logging_outputs.py").write_text(source)
    code, said = run_command("watch", "logging_outputs.py", kib=6000)
    assert code == 1
    assert "`log.seen` keeps" in said
    assert "logging_outputs.py:13 log.seen[step] = out" in said


@needs_compiler
def test_a_graph_that_a_backward_keeps_is_named(run_command):
    source = KEPT.replace("losses.append(out.square())", "losses.append(out.square().mean())")
    source = source.replace("out.mean().backward()", "losses[-1].backward(retain_graph=True)")
    Path("retaining.py").write_text(source)
    code, said = run_command("watch", "retaining.py", kib=6000)
    assert code == 1
    assert "The backward of line 11 keeps the graph (`retain_graph` or `create_graph`)" in said
    assert "retaining.py:10 losses.append(out.square().mean())" in said


@needs_compiler
def test_forwards_without_a_backward_are_the_cause(run_command):
    Path("evaluating.py").write_text(FORWARDS)
    code, said = run_command("watch", "evaluating.py", kib=8000)
    assert code == 1
    assert "forwards ran with gradients and no backward yet" in said
    assert "are all kept. evaluating.py:12 total = total + model(torch.ones(64, 64)).mean()" in said
    assert "torch.no_grad()" in said


@needs_compiler
def test_train_names_a_setting_that_fits_and_the_next_one_that_does_not(run_command):
    Path("net.py").write_text(RECIPE)
    limit = 450
    code, said = run_command("train", "net.py", "--run", "run", kib=limit)
    assert code == 1
    assert "torch.OutOfMemoryError: Tried to allocate" in said
    record = read_out_of_memory(Path("run"))
    assert record.planned_bytes > record.limit_bytes - record.outside_bytes
    named, beyond = record.fits[0], record.beyond
    assert named.knobs["global_batch_tokens"] == 64  # the update stays as it is
    assert f"Fix: `micro_batch_size={named.knobs['micro_batch_size']} global_batch_tokens=64` fits" in said
    words = [f"{name}={value}" for name, value in named.knobs.items()]
    assert run_command("train", "net.py", *words, "--run", "named", "--no-plan", kib=limit)[0] == 0
    words = [f"{name}={value}" for name, value in beyond.knobs.items()]
    assert run_command("train", "net.py", *words, "--run", "beyond", "--no-plan", kib=limit)[0] == 1


@needs_compiler
def test_tensors_of_a_reference_recipe_have_no_line_of_whoever_started_it(run_command):
    code, said = run_command("train", "regression", "max_steps=2", "--run", "run", kib=1)
    assert code == 1
    assert "Explained: out of memory in" in said
    assert read_out_of_memory(Path("run")).place is None
    assert ".py" not in said.partition("Explained")[2].partition("It was raised")[0]


def test_a_limit_without_a_unit_is_refused(run_command):
    Path("net.py").write_text(RECIPE)
    code, said = run_command("train", "net.py", "--memory-limit", "2")
    assert code == 2
    assert "'2' is no size" in said


@needs_compiler
def test_watch_names_the_argument_that_fits_and_keeps_the_model(run_command, monkeypatch):
    monkeypatch.setattr(fitting_arguments, "MOST_SECONDS", 1e9)  # a busy machine changes no answer
    Path("options.py").write_text(WITH_OPTIONS)
    code, said = run_command("watch", "options.py", "--run", "run", kib=2200)
    assert code == 1
    assert "Fix: `--rows 512` fits:" in said
    assert "python options.py --rows 512" in said
    record = read_out_of_memory(Path("run"))
    assert [each.knobs for each in record.fits] == [{"--rows": 512}]  # half the width would fit too, as another model
    assert 1100 * 2**10 < record.fits[0].planned_bytes < 2200 * 2**10 < record.planned_bytes
    code, said = run_command("watch", "options.py", "--", "--rows", "512", kib=2200)
    assert code != 1, said


@needs_compiler
def test_a_limit_changes_no_number(tmp_path):
    (tmp_path / "net.py").write_text(RECIPE)
    import surefoot

    recipe = surefoot.load_recipe(f"{tmp_path}/net.py")
    plain = surefoot.train(recipe, path=str(tmp_path / "plain"))
    limited = surefoot.train(recipe, path=str(tmp_path / "limited"), memory_limit=2**40)
    assert plain.weights_digest == limited.weights_digest
    assert [row.loss for row in plain.rows()] == [row.loss for row in limited.rows()]


def test_torchs_errors_are_known_with_what_they_asked_for():
    gpu = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of ...")
    cpu = RuntimeError(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000 bytes. Error code 12"
    )
    assert [is_out_of_memory(each) for each in (gpu, cpu)] == [True, True]
    assert [asked_bytes(str(each)) for each in (gpu, cpu)] == [20 * 2**20, 80_000_000]
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_without_a_limit_the_line_and_the_standing_bytes_are_known(run_command):
    raising = "raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 MiB.')\n    loss.backward()"
    source = SCRIPT.replace("SIZES", "[16]").replace("loss.backward()", raising)
    Path("raising.py").write_text(source)
    code, said = run_command("watch", "raising.py")
    assert code == 1
    assert "Explained (raising.py:10): out of memory: 20.00 MiB were asked for" in said
    assert "run it again with --memory-limit" in said


# ------------------------------------------------------------------------------------------- causes, on made records

MADE = OutOfMemory("OutOfMemoryError", "", asked_bytes=100, live_bytes=1000, limit_bytes=1050, followed=True)
ACTIVATIONS = (Held("activations", "body", "forward", 700), Held("parameters", "body", "init", 300))


def test_state_alone_is_no_matter_of_the_batch():
    held = (Held("optimizer", "", "update", 600), Held("parameters", "", "init", 300))
    cause = cause_of(replace(MADE, held=held))
    assert cause.said == "Parameters, gradients and optimizer states take 900 B of 1000 B."
    assert "smaller batch does not change that" in cause.remedy


def test_one_tensor_of_half_the_limit_is_the_cause_and_its_line():
    line = Place("a.py", 3, "x - y")
    cause = cause_of(replace(MADE, asked_bytes=600, held=ACTIVATIONS, place=line))
    assert cause.said.startswith("One operation asks for 600 B, 57% of 1.03 KiB")
    assert cause.places == (line,)


def test_a_setting_that_fits_is_the_remedy_of_activations_and_not_of_a_leak():
    fits = replace(MADE, held=ACTIVATIONS, fits=(Setting({"micro_batch_size": 2}, 900, ""),))
    assert cause_of(fits).remedy == "`micro_batch_size=2` fits: 900 B planned."
    kept = LiveTensor(500, 5, "activations", "", "loss", "", "", kept_steps=5)
    assert "loss.item()" in cause_of(replace(fits, largest=(kept,))).remedy


def test_an_unusual_batch_is_named_with_the_usual_one():
    batch = Batch(("int64[8, 512]",), ("int64[8, 64]",), 7, 400)
    cause = cause_of(replace(MADE, held=ACTIVATIONS, batch=batch))
    assert cause.said == (
        "This batch is int64[8, 512]. Most of the 7 steps before had int64[8, 64], which peaked at 400 B."
    )


def test_a_smaller_batch_is_not_the_cause():
    batch = Batch(("int64[4, 64]",), ("int64[8, 64]",), 7, 400)
    assert "Activations" in cause_of(replace(MADE, held=ACTIVATIONS, batch=batch)).said


def test_what_keeps_tensors_and_the_backward_that_keeps_their_graph_come_before_the_lines_that_made_them():
    kept = LiveTensor(500, 5, "activations", "", "loss", "", "", kept_steps=5, place=Place("a.py", 9, "x * x"))
    keeper = Keeper("self.history", 5, (Place("a.py", 7, "self.history.append(loss)"),))
    retained = Place("a.py", 5, "loss.backward(retain_graph=True)")
    cause = cause_of(replace(MADE, held=ACTIVATIONS, largest=(kept, kept), keepers=(keeper,), retained=retained))
    assert "`self.history` keeps 5 tensors of them" in cause.said
    assert "The backward of line 5 keeps the graph" in cause.said
    assert [each.line for each in cause.places] == [5, 7, 9]
