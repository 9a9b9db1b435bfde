"""Watching a loop of one's own: the same tally as profile, and not one bit changed."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import surefoot
from surefoot.data.batches import batches_of, micro_batches
from surefoot.watch import watch_script


def hand_written(recipe: surefoot.Recipe, steps: int, *, watched: bool):
    """The loop a person would write for a recipe: accumulation, clipping, AdamW."""
    torch.manual_seed(recipe.seed)
    model = recipe.model()
    optimizer = recipe.optimizer(model.parameters())
    batches = batches_of(recipe)
    losses = []

    def loop():
        for _ in range(steps):
            optimizer.zero_grad()
            for number in range(recipe.micro_batches()):
                batch = next(batches)
                loss, count = recipe.loss(model, batch)
                if number == 0:
                    reference, total, running = count, count, loss.detach()
                else:
                    total, running = total + count, running + loss.detach()
                (loss / reference).backward()
            losses.append(running.item() / total)
            for parameter in model.parameters():
                if total != reference:
                    parameter.grad.mul_(reference / total)
            if recipe.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
            optimizer.step()

    if not watched:
        loop()
        return losses, None
    with surefoot.watch(model, optimizer) as seen:
        loop()
    return losses, seen


def functional(steps: int, *, watched: bool):
    """A loop with the gradient of each sample, by `torch.func`."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = {name: each.detach() for name, each in model.named_parameters()}
    inputs, targets = torch.randn(16, 3), torch.randn(16, 1)

    def loss_of_one(parameters, x, y):
        return (torch.func.functional_call(model, parameters, (x[None],)) - y).square().mean()

    each = torch.func.vmap(torch.func.grad_and_value(loss_of_one), in_dims=(None, 0, 0))
    losses = []
    with surefoot.watch(model, optimizer) if watched else nullcontext() as seen:
        for _ in range(steps):
            gradients, found = each(parameters, inputs, targets)
            for name, parameter in model.named_parameters():
                parameter.grad = gradients[name].mean(0)
            optimizer.step()
            losses.append(found.mean().item())
    return losses, seen


def test_gradients_of_single_samples_by_torch_func_are_left_in_peace():
    losses, seen = functional(3, watched=True)
    assert losses == functional(3, watched=False)[0]
    assert losses[-1] < losses[0]
    assert not seen.findings.findings


@pytest.mark.parametrize("name", ["regression", "cruncher", "sentiment", "fashion-convolutional", "gpt"])
def test_a_watched_loop_has_the_tally_of_profile_and_the_losses_of_an_unwatched_one(name: str, small_recipe):
    recipe = small_recipe(name)
    profile = surefoot.profile(recipe, timed_steps=1)
    losses, seen = hand_written(recipe, 2, watched=True)
    bare, _ = hand_written(recipe, 2, watched=False)
    assert [loss.hex() for loss in losses] == [loss.hex() for loss in bare]
    assert {finding.severity for finding in seen.findings.findings} <= {"info"}
    assert seen.tally == profile.steady.tally
    assert seen.steps[1].peak == profile.steady.peak


def test_a_loop_inside_the_fake_world_has_the_same_tally_too(small_recipe):
    recipe = small_recipe("gpt")
    batch = next(micro_batches(recipe.data(), size=recipe.micro_batch_size, seed=0))

    def loop(model, optimizer, tokens, targets):
        for _ in range(2):
            optimizer.zero_grad()
            loss, count = recipe.loss(model, (tokens, targets))
            (loss / count).backward()
            optimizer.step()

    def tally(world):
        with world:
            model = recipe.model()
            optimizer = recipe.optimizer(model.parameters())
            with surefoot.watch(model, optimizer) as seen:
                loop(model, optimizer, *(torch.zeros(each.shape, dtype=each.dtype) for each in batch))
            return seen.tally

    from contextlib import nullcontext

    assert tally(surefoot.fake_world()) == tally(nullcontext())


SCRIPT = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
criterion = nn.functional.cross_entropy
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    if "forget" not in sys.argv:
        optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print("loss", loss.item().hex())
"""

BY_HAND = """
import torch
weight = torch.zeros(3, requires_grad=True)
for _ in range(3):
    (gradient,) = torch.autograd.grad((weight - 1).square().sum(), weight)
    with torch.no_grad():
        weight -= 0.1 * gradient
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def losses_of(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("loss")]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    wide = {**os.environ, "COLUMNS": "300"}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=wide)


def test_a_watched_script_computes_the_same_bits(script: Path):
    bare, watched = run(str(script)), run("-m", "surefoot", "watch", str(script))
    assert watched.returncode == 0, watched.stderr
    assert losses_of(watched.stdout) == losses_of(bare.stdout)
    assert len(losses_of(bare.stdout)) == 6
    assert "nothing found by" in watched.stdout


def test_a_bug_in_a_script_is_named_with_its_line_and_the_exit_code_says_so(script: Path):
    watched = run("-m", "surefoot", "watch", str(script), "--steps", "3", "--", "forget")
    assert watched.returncode == 1
    assert "missing-zero-grad" in watched.stdout
    assert "train.py:15" in watched.stdout
    assert "15 | loss.backward()" in watched.stdout
    assert len(losses_of(watched.stdout)) == 2  # the third update ends the script


def test_a_watched_script_and_a_watched_loop_agree_with_profile(script: Path, capsys):
    from torch import nn

    watched = watch_script(str(script))
    assert watched.steps == 6
    assert watched.models == ("Sequential",)

    def loss(model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    recipe = surefoot.Recipe(
        model=lambda: nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2)),
        data=lambda: torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,))),
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        micro_batch_size=16,
    )
    profile = surefoot.profile(recipe, timed_steps=1)
    assert watched.steady.tally == profile.steady.tally
    assert watched.steady.peak == profile.steady.peak


def test_a_script_that_trains_nothing_is_said_to(tmp_path: Path):
    path = tmp_path / "nothing.py"
    path.write_text("print('hello')\n")
    watched = run("-m", "surefoot", "watch", str(path))
    assert watched.returncode == 2
    assert "no training was seen: no backward pass and no optimizer step" in watched.stdout
    assert "nothing found" not in watched.stdout


def test_gradients_without_an_optimizer_are_training(tmp_path: Path):
    path = tmp_path / "by_hand.py"
    path.write_text(BY_HAND)
    watched = run("-m", "surefoot", "watch", str(path))
    assert (watched.returncode, "no training was seen" in watched.stdout) == (0, False), watched.stderr


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("world", [nullcontext, surefoot.fake_world], ids=["real", "fake"])
def test_a_loop_without_updates_is_one_step(mode, world):
    with world():
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()
        with surefoot.watch(model) as seen, mode():
            for _ in range(5):
                model(torch.randn(2, 3, 8))
    (usage,) = seen.steps
    assert usage.peak.phase == "evaluate"
    weights, inputs, hidden = 4 * (9 * 16 + 17 * 4), 4 * 6 * 8, 4 * 6 * 16
    assert usage.peak.peak_bytes == weights + inputs + 2 * hidden
    assert seen.tally.total("flops/evaluate") == 5 * 2 * 6 * (8 * 16 + 16 * 4)


def test_a_script_without_updates_is_measured_as_a_whole(tmp_path: Path):
    path = tmp_path / "inference.py"
    path.write_text("import torch\nmodel = torch.nn.Linear(8, 8)\nwith torch.no_grad():\n    model(torch.ones(2, 8))\n")
    watched = run("-m", "surefoot", "watch", str(path))
    assert watched.returncode == 2
    assert "no optimizer made an update; the whole script: 416 B at the peak" in " ".join(watched.stdout.split())


def test_watching_restores_arguments_and_path(script: Path, capsys):
    argv, path = list(sys.argv), list(sys.path)
    watch_script(str(script), ["a"], steps=2)
    assert sys.argv == argv
    assert sys.path == path


def test_a_recipe_is_checked():
    recipe = str(Path(__file__).parent.parent / "examples" / "made_line.py")
    watched = run("-m", "surefoot", "watch", recipe, "--", "lr=0.01")
    assert watched.returncode == 0, watched.stderr
    told, *checked = watched.stdout.splitlines()
    assert told.endswith(f"is a recipe: checking it as `surefoot check {recipe}` does")
    assert any(line.startswith("line: ") for line in checked)
    refused = run("-m", "surefoot", "watch", recipe, "--run", "somewhere")
    assert (refused.returncode, "--run needs a script" in refused.stderr) == (2, True)


def test_a_file_that_is_not_python_is_refused(tmp_path: Path):
    path = tmp_path / "config.yaml"
    path.write_text("lr: 0.1\n")
    refused = run("-m", "surefoot", "watch", str(path))
    assert (refused.returncode, "is not a Python script" in refused.stderr) == (2, True)
