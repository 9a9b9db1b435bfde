"""Plans of unchanged scripts, through the command line: on a card that is not there."""

import json
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import WorldError
from surefoot.planning.scripts.launch import launch_of
from surefoot.planning.scripts.plan_script import largest_argument, plan_script, try_arguments

TRAIN = """
import argparse, torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for step in range(1000):
    x, y = torch.randn(args.batch, 64, device=device), torch.randint(0, 10, (args.batch,), device=device)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("printed", step, f"{loss.item():.3f}", loss.device)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes a script to a folder and goes there. What it would write lies outside of the temporary folder."""
    monkeypatch.chdir(tmp_path)

    def write(source: str, name: str = "train.py") -> str:
        (tmp_path / name).write_text(dedent(source))
        return name

    return write


def surefoot_plan(*words: str):
    return CliRunner().invoke(app, ["plan", *words], env={"COLUMNS": "80"})


def total(plan, account: str) -> int:
    return int(plan.steady.tally.total(f"memory/{account}"))


def test_a_script_is_planned_for_a_gpu_and_its_output_is_kept(script):
    done = surefoot_plan(script(TRAIN), "--on", "h100-sxm", "--", "--batch", "16")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("train.py fits h100-sxm")
    assert "looked at: the script up to its update 3; not at what comes later" in done.stdout
    assert "19,210 parameters, 16 samples per step in 1 micro-batch" in done.stdout
    assert "printed" not in done.output
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_accounts_of_a_script_are_those_that_its_tensors_have(script):
    plan = plan_script([script(TRAIN)], on="h100-sxm", steps=50)
    parameters = 4 * (64 * 256 + 256 + 256 * 10 + 10)
    assert total(plan, "parameters") == total(plan, "gradients") == parameters
    assert total(plan, "optimizer") == 2 * parameters + 4 * 4  # the step counters of fused AdamW are on the card
    assert plan.parameters * 4 == parameters
    assert plan.fit is not None
    assert plan.time is not None
    assert plan.cost.steps == 50


RECIPES = {
    "cnn": """
        def model():
            layers = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.1)
            return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10))
        def sample(i):
            return torch.randn(3, 32, 32), torch.tensor(i % 10)
    """,
    "gpt": """
        def model():
            return surefoot.load_recipe("gpt", ["layers=2", "width=64", "heads=2", "context=64"]).model()
        def sample(i):
            tokens = torch.randint(0, 200, (65,))
            return tokens[:-1], tokens[1:]
    """,
    "llama": """
        def model():
            return surefoot.load_recipe("llama", ["layers=2"]).model()
        def sample(i):  # so long that the peak is in backward: in an update, a recipe holds its sums of the loss too
            tokens = torch.randint(0, 200, (257,))
            return tokens[:-1], tokens[1:]
    """,
}
BOTH = """
import torch, surefoot
from torch import nn

{model}

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return sample(i)

def loss(network, batch):
    return nn.functional.cross_entropy(network(batch[0]).flatten(0, -2).float(), batch[1].flatten())

def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True)

if __name__ == "__main__":
    network = model().to("cuda")
    updates = optimizer(network.parameters())
    for x, y in torch.utils.data.DataLoader(Samples(), batch_size=4):
        batch = x.to("cuda"), y.to("cuda")
        del x, y
        value = loss(network, batch)
        value.backward()
        updates.step()
        updates.zero_grad()
        del value, batch
"""


@pytest.mark.parametrize("kind", ["cnn", "gpt", "llama"])
def test_a_script_and_a_recipe_of_one_model_take_the_same_bytes(script, kind, monkeypatch):
    source = BOTH.format(model=dedent(RECIPES[kind]))
    name = script(source, f"both_{kind}.py")
    names: dict = {"__name__": "both"}
    exec(source, names)
    recipe = surefoot.Recipe(
        model=names["model"],
        data=names["Samples"],
        loss=names["loss"],
        optimizer=names["optimizer"],
        micro_batch_size=4,
        max_steps=5,
    )
    of_recipe = surefoot.plan(recipe, on="h100-sxm", reuse=False, resume=False)
    of_script = plan_script([name], on="h100-sxm")
    assert of_script.first.peak == of_recipe.first.peak
    assert of_script.steady.peak == of_recipe.steady.peak
    for account in (
        "parameters",
        "gradients",
        "optimizer",
        "buffers",
        "activations",
        "inputs",
        "temporary",
        "workspace",
    ):
        assert total(of_script, account) == total(of_recipe, account)
    for allocator, reserved in of_script.reserved_bytes.items():
        # An expandable segment grows by pages: the llama's differ by one. Why is not known.
        page = 2 << 20 if (kind, allocator) == ("llama", "expandable") else 0
        assert abs(reserved - of_recipe.reserved_bytes[allocator]) <= page
    assert of_script.tally.total("flops") == of_recipe.tally.total("flops")


def test_a_script_that_names_no_device_is_planned_as_if_it_were_moved(script):
    moved = plan_script([script(TRAIN.replace('"cuda" if torch.cuda.is_available() else "cpu"', '"cpu"'))], on="t4")
    assert any("names no device" in said for said in moved.script)
    named = plan_script([script(TRAIN)], on="t4")
    for account in ("parameters", "gradients", "optimizer"):
        assert total(moved, account) == total(named, account)


def test_targets_of_a_script_that_names_no_device_are_moved_when_they_meet_the_card(script):
    """The README's script: its model takes the inputs, and its own arithmetic the targets, as floats."""
    source = (Path(__file__).parents[3] / "examples" / "house_prices.py").read_text(encoding="utf-8")
    plan = plan_script([script(source)], on="t4")
    assert any("names no device" in said for said in plan.script)
    assert plan.tokens_per_step == 64


def test_tensors_of_the_host_that_meet_those_of_the_card_are_told(script):
    plan = plan_script([script(TRAIN.replace("(args.batch,), device=device)", "(args.batch,))"))], on="t4")
    assert any("tensors of the host meet tensors of the GPU" in said and "train.py:13" in said for said in plan.script)


MADE_LIKE = """
import torch
like = torch.zeros(1000, 64)
assert torch.version.cuda == BUILT
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    model(torch.rand_like(like, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_tensor_made_like_one_of_the_host_takes_nothing_of_it(script):
    built = torch.version.cuda or "12.8"  # libraries compare it with what they were built for
    plan = plan_script([script(MADE_LIKE.replace("BUILT", repr(built)))])
    weights, batch = 4 * (64 * 64 + 64), 4 * 1000 * 64
    assert not any("tensors of the host meet" in said for said in plan.script)
    assert plan.steady.peak.peak_bytes < 2 * weights + 2 * batch + 1000  # the batch and what comes out of the model


OLD_NAMES = """
import numpy, torch
Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    x = torch.ones(numpy.int64(1000), 64).type(Tensor)
    assert x.type() == "torch.cuda.FloatTensor" and isinstance(x, Tensor)
    assert not isinstance(torch.ones(2), Tensor) and not isinstance(x.long(), Tensor)
    assert torch.ones(2, 3).type("torch.cuda.LongTensor").dtype == torch.int64
    target = Tensor(numpy.zeros((1000, 64))) + Tensor(numpy.int64(1000), 64).fill_(1.0) + Tensor(torch.ones(1000, 64))
    (model(x) - target).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_old_names_of_tensors_on_a_gpu_make_them_there(script):
    plan = plan_script([script(OLD_NAMES)], on="t4")
    assert not any("tensors of the host meet" in said for said in plan.script)
    assert plan.steady.peak.peak_bytes > 4 * 1000 * 64 * 4


@pytest.mark.sweep
def test_branches_on_unknown_values_are_answered_and_told(script):
    plan = plan_script([script(TRAIN + "\n    if (loss > 3) & (loss < 4):\n        raise ValueError\n")], on="t4")
    assert any(".item() on a float32 tensor answered 1 (" in note for note in plan.assumptions)


def test_what_a_script_writes_stays_away_from_its_folder(script, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "old.txt").write_text("old")
    source = TRAIN.replace(
        "for step",
        """import os, pathlib
os.makedirs("out/deep", exist_ok=True)
pathlib.Path("out/deep/log.txt").write_text("one")
assert open("out/deep/log.txt").read() == "one"
open("old.txt", "a").write(" and new")
assert open("old.txt").read() == "old and new"
os.remove("old.txt")
torch.save({"model": model.state_dict(), "step": 3}, "out/last.pt")
kept = torch.load("out/last.pt", map_location=device)
assert kept["step"] == 3 and kept["model"]["0.weight"].is_cuda
model.load_state_dict(kept["model"])
import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=1)
except OSError as error:
    assert "no other machine" in str(error), error
for step""",
    )
    plan = plan_script([script(source)], on="t4")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["old.txt", "temporary", "train.py"]
    assert (tmp_path / "old.txt").read_text() == "old"
    (told,) = (said for said in plan.script if said.startswith("held back: "))
    assert "writing log.txt at train.py:13" in told


def test_an_error_of_the_script_names_its_line_and_its_last_output(script):
    done = surefoot_plan(script(TRAIN.replace("(64, 256)", "(65, 256)")), "--on", "t4")
    assert done.exit_code != 0
    assert isinstance(done.exception, WorldError)
    assert "the script failed at train.py:13 on a card that is not there: RuntimeError" in str(done.exception)


def test_a_script_without_training_is_refused(script):
    with pytest.raises(WorldError, match="made no update of an optimizer"):
        plan_script([script("print('hello')")], on="t4")


def test_arguments_are_compared_and_the_largest_is_found(script):
    tries = try_arguments([script(TRAIN)], ["--batch 8,64"], on="t4", updates=2)
    assert [each.arguments for each in tries.tried] == ["--batch 64", "--batch 8"]


@pytest.mark.long
def test_the_largest_argument_that_fits_is_found(script):
    wide = TRAIN.replace("nn.Linear(64, 256)", "nn.Linear(64, 1 << 24)").replace("(256, 10)", "(1 << 24, 10)")
    name = script(wide.replace("AdamW(model.parameters(), fused=True)", "SGD(model.parameters(), 0)"))
    found = largest_argument([name], "--batch {}", on="t4", updates=1)
    best, above = found.tried[0], [each for each in found.tried if not each.fits]
    assert best.fits
    assert above
    assert int(best.arguments.split()[1]) + 1 == min(int(each.arguments.split()[1]) for each in above)


RANKS = """
import os, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).to(local)
{shared}
optimizer = torch.optim.AdamW(model.parameters())
for step in range(100):
    loss = model(torch.randn(8, 256, device=local)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""
DDP = "model = nn.parallel.DistributedDataParallel(model, device_ids=[local])"
FSDP = "from torch.distributed.fsdp import fully_shard; fully_shard(model)"


def test_ddp_and_fsdp_of_a_script_are_planned_as_one_of_its_ranks(script):
    name = script(RANKS.format(shared=DDP))
    done = surefoot_plan("--on", "h100-sxm", "--json", "--", "torchrun", "--nproc-per-node", "4", name)
    assert done.exit_code == 0, done.output
    ddp = json.loads(done.stdout)
    assert ddp["ranks"] == 4
    assert ddp["tokens_per_step"] == 4 * 8
    fsdp = plan_script([script(RANKS.format(shared=FSDP), "sharded.py")], on="4xh100-sxm")
    parameters = 4 * (256 * 1024 + 1024 + 1024 * 256 + 256)
    assert total(fsdp, "optimizer") == 2 * parameters // 4
    held = {each["name"]: each["amount"] for each in ddp["steady"]["tally"]["accounts"]}
    assert sum(amount for each, amount in held.items() if each.startswith("memory/optimizer")) == 2 * parameters
    assert any(each.name.startswith("collectives/") for each in fsdp.steady.tally.accounts)
    filled = "model.to_empty(device=local); [nn.init.trunc_normal_(each) for each in model.parameters()]"
    meta = RANKS.format(shared=f"{FSDP}; {filled}").replace(".to(local)", '.to("meta")')
    of_meta = plan_script([script(meta, "meta.py")], on="4xh100-sxm")
    for account in ("parameters", "gradients", "optimizer"):
        assert total(of_meta, account) == total(fsdp, account)


def test_large_weights_take_no_memory_here(script):
    # VmHWM, not ru_maxrss: a child's ru_maxrss begins at the largest size of the process that started it.
    source = """
    import re, torch
    from torch import nn
    model = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(24)]).to(torch.bfloat16).to("cuda")  # 6 GiB in float32
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(9):
        model(torch.randn(4, 8192, device="cuda", dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) < 2 << 20  # KiB
    """
    plan = plan_script([script(source)], on="h100-sxm")
    assert total(plan, "parameters") == 24 * (8192 * 8192 + 8192) * 2


# ------------------------------------------------------------------------------------------- how it is started


@pytest.mark.parametrize(
    ("words", "name", "ranks"),
    [
        (["python", "-u", "-m", "json.tool", "x"], "json.tool", None),
        (["torchrun", "--standalone", "--nproc-per-node=4", "--nnodes", "2", "{script}", "--lr", "1"], "train.py", 8),
        (["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "{script}"], "train.py", 2),
        (["{script}", "--batch", "4"], "train.py", None),
        (["pytest", "--version"], "pytest", None),
    ],
)
def test_whatever_starts_python_is_read(script, words, name, ranks):
    file = script("import sys; raise SystemExit(0)")
    launch = launch_of([word.format(script=file) for word in words])
    assert (launch.name, launch.ranks) == (name, ranks)


def test_what_is_no_command_is_refused(script):
    done = surefoot_plan("--on", "t4", "--", "python", "nowhere.py")
    assert "nowhere.py is neither a file nor a command" in str(done.exception)


def test_options_of_recipes_and_of_scripts_are_not_mixed(script):
    assert "--fit plans a recipe" in surefoot_plan(script(TRAIN), "--on", "t4", "--fit").output
    assert "--try is for a script" in surefoot_plan("gpt", "--on", "t4", "--try", "--batch 8").output


def test_torch_is_as_it_was_after_a_card(tmp_path):
    from surefoot.planning.scripts.script import trace_script

    before = {name: getattr(torch.cuda, name) for name in ("is_available", "Event", "mem_get_info")}
    methods = {name: vars(torch.Tensor).get(name) for name in ("to", "device", "cpu", "data")}

    def run() -> None:
        model = nn.Linear(4, 4).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(9):
            assert model(torch.ones(2, 4, device="cuda")).sum().backward() is None
            assert next(model.parameters()).device == torch.device("cuda", 0)
            optimizer.step()

    traced = trace_script(run, None, tmp_path)
    assert len(traced.steps) == 3
    assert before == {name: getattr(torch.cuda, name) for name in before}
    assert methods == {name: vars(torch.Tensor).get(name) for name in methods}
    assert torch.ones(2).to("cpu").device.type == "cpu"
    assert sys.modules["torch"] is torch
    assert Path(tmp_path).exists()


SUMS = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    hidden = model(torch.randn(256, 64, device="cuda"))
    sum((hidden * factor).sum() for factor in range(2, 6)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_gradients_that_autograd_adds_in_place_are_counted_once(script):
    plan = plan_script([script(SUMS)])
    # weights, input, hidden, and two gradients of it: the sum so far and the next one; losses are numbers
    weights, batch = 4 * (64 * 64 + 64), 4 * 256 * 64
    assert plan.steady.peak.peak_bytes < weights + 4 * batch + 1000


REMOVES = """
import os, shutil, torch
shutil.rmtree("old")
assert not os.path.exists("old")
os.makedirs("old")
with open("old/new.txt", "w") as file:
    file.write("new")
os.chmod("old/new.txt", 0o600)
shutil.move("kept.txt", "old/moved.txt")
assert not os.path.exists("kept.txt") and os.listdir("old")
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.randn(2, 4, device="cuda")).sum().backward()
optimizer.step()
"""


def test_what_a_script_removes_and_moves_stays(script, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))  # what is below is free to write
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.txt").write_text("a")
    (tmp_path / "kept.txt").write_text("kept")
    plan_script([script(REMOVES)])
    assert (tmp_path / "kept.txt").read_text() == "kept"
    assert [each.name for each in (tmp_path / "old").iterdir()] == ["a.txt"]


def test_small_constants_keep_their_values_on_the_card_and_back(script):
    source = """
        import torch
        model = torch.nn.Linear(8, 8).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sizes = torch.tensor([1.5, 2.5]).to("cuda")
        for step in range(3):
            assert sizes.cpu().tolist() == [1.5, 2.5]
            rounds = int((sizes * 2).sum().item())
            model(torch.randn(4, 8, device="cuda")).repeat(rounds, 1).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    plan = plan_script([script(source)])
    assert plan.steady.peak.peak_bytes >= 4 * (72 + 8 * 4 * 8)  # eight copies of the result beside the parameters
    assert not any("not validated" in note for note in plan.assumptions)
