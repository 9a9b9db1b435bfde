"""pickled-module: the buggy and the fixed program, variants, and what looks like it and is fine."""

import io

import pytest
import torch
from torch import nn

import surefoot
from surefoot.watch import watch_script
from tests.checks.programs import found_by, twin
from tests.checks.saved_state.programs import adam, net, saved, saving, train

pytestmark = pytest.mark.sweep


@twin("pickled-module")
def _(buggy):
    import io

    return saving(io.BytesIO(), lambda model, _: model if buggy else model.state_dict())


@pytest.mark.parametrize("wrapped", [True, False])
def test_names_of_a_wrapper_in_a_file_are_mentioned(wrapped):
    with surefoot.watch() as seen:
        model = net()
        train(model, adam(model))
        torch.save((nn.DataParallel(model) if wrapped else model).state_dict(), io.BytesIO())
    assert found_by(seen) == (["pickled-module"] if wrapped else [])


class Kit:
    def __init__(self, model):
        self.model = model


@pytest.mark.parametrize("hold", [lambda model: (model, 1), lambda model: {"all": [model]}, Kit])
def test_a_module_is_seen_in_whatever_it_is_saved_in(hold):
    assert saved(lambda model, _: hold(model)) == ["pickled-module"]


def test_what_is_saved_at_the_end_of_a_long_script_is_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "long.py"
    script.write_text(
        "import torch\n"
        "layer = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)\n"
        "for step in range(120):\n"
        "    optimizer.zero_grad()\n"
        "    (layer(torch.randn(4, 2)) - 1).square().mean().backward()\n"
        "    optimizer.step()\n"
        "torch.save(layer, 'layer.pt')\n",
        encoding="utf-8",
    )
    assert [each.check for each in watch_script(str(script)).findings.findings] == ["pickled-module"]
