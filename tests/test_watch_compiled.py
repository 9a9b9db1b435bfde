"""Watching scripts that compile: they run as without, and are compiled again once nobody looks."""

import warnings

import pytest
import torch
from torch import nn

import surefoot
from surefoot.checks.loop.compiled_code import SAID
from surefoot.watch import CHECKED_STEPS, watch_script

SCRIPT = """
import torch
from torch import nn

graphs = []


def counting(graph, inputs):
    graphs.append(graph)
    return graph.forward


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
{compiled}
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range({steps}):
    inputs = torch.randn(16, 4)
    loss = nn.functional.mse_loss(called(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert bool(graphs) is {again}, graphs
"""
FORMS = {
    "a module": "called = torch.compile(model, backend=counting, fullgraph=True)",
    "in place": "model.compile(backend=counting, fullgraph=True); called = model",
    "a function": "called = torch.compile(lambda inputs: model(inputs), backend=counting, fullgraph=True)",
    "with breaks": "called = torch.compile(model, backend=counting)",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("steps", [5, CHECKED_STEPS + 3])
def test_compiled_code_runs_as_written_while_it_is_looked_at(form: str, steps: int, tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(compiled=FORMS[form], steps=steps, again=steps > CHECKED_STEPS))
    torch.compiler.reset()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        seen = watch_script(str(script))
    assert seen.steps == steps
    assert not seen.findings.findings
    assert not [each for each in told if "hooks" in str(each.message)]
    assert torch._dynamo.eval_frame._stance.stance == "default"
    assert capsys.readouterr().err.count(SAID) == 1
    assert [each for each in seen.findings.not_examined if "torch.compile" in each]


def test_nothing_is_said_where_nothing_is_compiled(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(compiled="called = model", steps=3, again=False))
    seen = watch_script(str(script))
    assert SAID not in capsys.readouterr().err
    assert not [each for each in seen.findings.not_examined if "torch.compile" in each]


def test_a_model_that_was_compiled_before_is_noticed(capsys):
    model = nn.Linear(4, 2)
    called = torch.compile(model, backend="eager")
    with surefoot.watch() as seen:
        called(torch.ones(2, 4)).sum().backward()
    assert SAID in capsys.readouterr().err
    assert [each for each in seen.findings.not_examined if "torch.compile" in each]
