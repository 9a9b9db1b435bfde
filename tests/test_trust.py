"""A run is data: no command executes what it holds or names, unless the user says so."""

import dataclasses
import functools
import json
import os
import shutil
import sys
import textwrap

import pytest
import torch
from safetensors.torch import load_file

import surefoot
from surefoot.cli.main import main
from surefoot.errors import RecipeError, RunError
from surefoot.recipe.load import load_recipe
from surefoot.records.profile import write_profile
from surefoot.ways.export import export_weights

MINE = """
import torch
from torch import nn
from surefoot import Recipe

def mine(width: int = 4, lr: float = 0.1) -> Recipe:
    data = torch.utils.data.TensorDataset(torch.ones(8, width), torch.ones(8, 1))
    return Recipe(
        model=lambda: nn.Linear(width, 1),
        data=lambda: data,
        loss=lambda model, batch: ((model(batch[0]) - batch[1]) ** 2).mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr),
        micro_batch_size=4,
        max_steps=2,
    )
"""


class Done:
    """What a command that ran in this process said, and how it ended."""

    def __init__(self, *words, monkeypatch, capsys):
        monkeypatch.setattr(sys, "argv", ["surefoot", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        self.returncode = ended.value.code
        self.stdout, self.stderr = capsys.readouterr()


@pytest.fixture
def command(monkeypatch, capsys):
    return functools.partial(Done, monkeypatch=monkeypatch, capsys=capsys)


def said(done):
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(MINE))
    return path


@pytest.fixture
def run(file, tmp_path):
    return surefoot.train(load_recipe(str(file), ["width=5"]), path=str(tmp_path / "run"))


def rewritten(run, **changes):
    """The same run, with other words in run.json."""
    place = os.path.join(run.path, "run.json")
    with open(place, encoding="utf-8") as read:
        plain = json.load(read)
    with open(place, "w", encoding="utf-8") as written:
        json.dump({**plain, **changes, "digest": ""}, written)


@pytest.mark.parametrize("words", [("export",), ("export", "--weights"), ("profile", "regression", "--against")])
def test_a_target_in_a_run_is_not_executed(words, run, tmp_path, command):
    rewritten(run, target="os:system", recipe="system", knobs={"command": f"touch {tmp_path / 'executed'}"})
    done = command(*words, run.path)
    assert not (tmp_path / "executed").exists()
    if "--weights" in words:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 2
    assert "imports 'os' and calls 'system' in it" in said(done)
    assert "--trust-run" in said(done)


@pytest.mark.parametrize("words", [("export",), ("export", "--weights"), ("profile", "regression", "--against")])
def test_the_copy_of_a_recipe_in_a_run_is_not_executed(words, run, tmp_path, command):
    run.source.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n" + MINE)
    done = command(*words, run.path)
    assert not (tmp_path / "executed").exists()
    if "--weights" not in words:
        assert done.returncode == 2
        assert "recipe.pyandcalls'mine'init" in said(done).replace(" ", "")  # a long path is cut at the edge


def test_a_target_in_a_profile_is_not_executed(run, tmp_path, command):
    write_profile(tmp_path / "kept", surefoot.profile(load_recipe("regression", ["samples=64"]), timed_steps=1))
    plain = json.loads((tmp_path / "kept" / "profile.json").read_text())
    plain.update(target="os:system", recipe="system", knobs={"command": f"touch {tmp_path / 'executed'}"})
    (tmp_path / "kept" / "profile.json").write_text(json.dumps(plain))
    done = command("profile", "regression", "samples=64", "--against", str(tmp_path / "kept"))
    assert not (tmp_path / "executed").exists()
    assert done.returncode == 2
    assert "imports 'os' and calls 'system' in it" in said(done)


def test_the_recipe_that_the_run_was_made_with_is_used_wherever_it_lies(run, file, tmp_path, command):
    run.source.write_text("raise SystemExit('the copy in the run was executed')\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = file.rename(elsewhere / "mine.py")
    done = command("export", run.path, str(moved), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["weights_difference"] == 0
    against = command("profile", str(moved), "width=3", "--against", run.path)
    assert against.returncode == 0, against.stderr


def test_a_recipe_that_has_changed_is_refused_and_the_copy_is_used_on_trust(run, file):
    file.write_text(MINE.replace("lr=lr", "lr=lr / 2"))
    with pytest.raises(RunError, match=r"mine.py has changed[\s\S]*--trust-run, which executes .*run/recipe.py"):
        surefoot.export(run.path, str(file))
    assert surefoot.export(run.path, trust_run=True).weights_difference == 0
    assert surefoot.export(run.path, str(file), trust_run=True).weights_difference == 0


def test_another_recipe_is_refused_before_it_is_made(run):
    with pytest.raises(RunError, match="that was 'mine', this is 'regression'"):
        surefoot.export(run.path, "regression")


def test_knobs_that_the_recipe_has_not_are_refused(run, file):
    rewritten(run, knobs={"width": 5, "model": "another"})
    with pytest.raises(RunError, match="it has no knob 'model'"):
        surefoot.export(run.path, str(file))


def test_a_recipe_made_in_python_is_given_as_it_is(file, tmp_path):
    recipe = dataclasses.replace(load_recipe(str(file)), target="")
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert surefoot.export(run.path, recipe).weights_difference == 0


def test_trust_goes_with_what_executes_code(run, command):
    assert "--weights executes no code" in said(command("export", run.path, "--weights", "--trust-run"))
    assert "--trust-run needs --against" in said(command("profile", "regression", "--trust-run"))


def test_weights_have_the_names_of_a_state_dict(tmp_path):
    """A tied tensor once, a buffer that a state dict leaves out not at all."""
    path = tmp_path / "tied.py"
    path.write_text(
        textwrap.dedent(MINE)
        .replace("nn.Linear(width, 1)", "Tied(width)")
        .replace(
            "def mine",
            textwrap.dedent("""
            class Tied(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)
                    self.two.weight = self.one.weight
                    self.register_buffer("kept", torch.ones(1))
                    self.register_buffer("passing", torch.ones(1), persistent=False)
                    self.two.register_buffer("passing", torch.ones(1), persistent=False)

                def forward(self, x):
                    return self.two(self.one(x)) * self.kept * self.passing

            def mine"""),
        )
    )
    run = surefoot.train(load_recipe(str(path)), path=str(tmp_path / "run"))
    path.unlink()
    run.source.unlink()
    written = load_file(export_weights(run.path).files[0])
    assert set(written) == {"kept", "one.bias", "one.weight", "two.bias"}
    trained = load_file(run.weights)
    assert all(torch.equal(trained[name], written[name]) for name in written)


def test_a_newer_checkpoint_that_is_damaged_is_named(file, tmp_path, command):
    run = surefoot.train(load_recipe(str(file), ["max_steps=4", "save_every=2"]), path=str(tmp_path / "run"))
    (run.checkpoints / "step-000000004" / "state.json").write_text("{}")
    done = command("export", run.path, "--weights")
    assert "of step 2 of" in said(done)
    assert "skipped, because it is damaged: step-000000004: state.json has 2 bytes" in said(done)


def test_a_newer_checkpoint_that_is_gone_is_named(file, tmp_path, command):
    run = surefoot.train(load_recipe(str(file), ["max_steps=4", "save_every=2"]), path=str(tmp_path / "run"))
    shutil.rmtree(run.checkpoints / "step-000000004")
    done = command("export", run.path, "--weights")
    assert "of step 2 of" in said(done)
    assert "step-000000004: it is missing" in said(done)


def test_an_export_does_not_write_through_links(run, file, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    export = tmp_path / "run" / "export"
    export.mkdir()
    for name in ("model.safetensors", "model.pt2"):
        (export / name).symlink_to(precious)
    surefoot.export(run.path, str(file))
    (export / "model.safetensors").unlink()
    (export / "model.safetensors").symlink_to(precious)
    export_weights(run.path)
    assert precious.read_text() == "as it was"


def test_a_folder_for_the_export_that_leads_out_of_the_run_is_refused(run, file, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "export").symlink_to(tmp_path / "elsewhere")
    for export in (lambda: surefoot.export(run.path, str(file)), lambda: export_weights(run.path)):
        with pytest.raises(RunError, match="export is a link to"):
            export()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_config_of_hugging_face_brings_no_code(tmp_path):
    pytest.importorskip("transformers")
    marker = tmp_path / "executed"
    (tmp_path / "own.py").write_text(
        f"open({str(marker)!r}, 'w')\n"
        "from transformers import PretrainedConfig\n"
        "class Own(PretrainedConfig):\n    model_type = 'own'\n"
    )
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(RecipeError, match="custom code"):
        load_recipe("hf", [f"config={tmp_path}"])
    assert not marker.exists()
