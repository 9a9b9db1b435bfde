"""audit: a bit that flips in memory is found by taking the steps again."""

import pytest
import torch

import surefoot
from surefoot.cli.main import app
from surefoot.debug.runs.audit import audit
from surefoot.errors import RunError
from surefoot.step import Step


def flip(tensor: torch.Tensor, bit: int = 3) -> None:
    tensor.view(-1).view(torch.int32)[0] ^= 1 << bit


FLIPS = {
    "optimizer.state.widen.weight.exp_avg": lambda step: flip(step.optimizer.state[step.model.widen.weight]["exp_avg"]),
    "model.classify.bias": lambda step: flip(step.model.classify.bias.data),
}


def test_an_undisturbed_run_is_the_same_again(small_recipe, tmp_path):
    recipe = small_recipe("sentiment", "max_steps=6", "save_every=2")
    surefoot.train(recipe, path=str(tmp_path / "run"))
    record = audit(recipe, str(tmp_path / "run"))
    assert (record.from_step, record.to_step, record.differing) == (4, 6, ())


@pytest.mark.parametrize("name", FLIPS)
def test_a_flipped_bit_is_found(name: str, small_recipe, tmp_path, monkeypatch):
    recipe = small_recipe("sentiment", "max_steps=6", "save_every=2")
    taken = Step.__call__

    def disturbed(step, batches):
        outcome = taken(step, batches)
        if step.number == 6:
            FLIPS[name](step)
        return outcome

    with monkeypatch.context() as patched:
        patched.setattr(Step, "__call__", disturbed)
        surefoot.train(recipe, path=str(tmp_path / "run"))
    assert audit(recipe, str(tmp_path / "run")).differing == (name,)


def test_the_command_says_so(tmp_path, capsys):
    words = ["train", "regression", "samples=64", "max_steps=4", "save_every=2", "--run", str(tmp_path / "run")]
    for more in ([], ["--audit"]):
        with pytest.raises(SystemExit) as ended:
            app([*words, *more])
        assert ended.value.code == 0
    assert "steps 3 to 4" in capsys.readouterr().out


def test_an_audit_needs_two_checkpoints(small_recipe, tmp_path):
    recipe = small_recipe("regression", "max_steps=2")
    surefoot.train(recipe, path=str(tmp_path / "run"))
    with pytest.raises(RunError, match="an audit needs two"):
        audit(recipe, str(tmp_path / "run"))
