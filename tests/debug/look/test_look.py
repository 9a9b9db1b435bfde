"""look: shapes, storages, makers and readers are those of the step, and the step is that of training."""

import json
import math
import re
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.debug.look.look import look_at_script
from surefoot.errors import RunError
from surefoot.records.codec import from_json, to_json
from surefoot.records.looked import GraphNode, Looked, form_text
from surefoot.reports.autograd_graph import MOST, graph_svg

SCRIPT = """
import sys
import torch
from torch import nn

torch.manual_seed(int(sys.argv[1]))
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for update in range(1000):
    loss = (model(torch.ones(6, 4)) - 3).square().mean()
    print("loss", loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    assert update == 0, "a second update began"
"""


class Odd(nn.Module):
    """Shares a weight, calls a layer twice, returns a view that is not contiguous, and holds a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.turn = Turned()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"a": self.turn(self.second(self.first(self.first(x)))), "b": x * self.scale}


class Turned(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.t()


@pytest.fixture(scope="module")
def odd() -> Looked:
    return surefoot.look(Odd(), torch.randn(3, 4))


def test_modules_say_what_they_returned(odd):
    found = {each.name: each for each in odd.modules}
    assert list(found) == ["", "first", "second", "turn"]
    assert [form_text(form) for form in found[""].outputs] == ["4x3 float32 strides 1x4", "3x4 float32"]
    assert (found["first"].calls, found["first"].parameters, found["second"].parameters) == (2, 20, 20)
    assert form_text(found["turn"].outputs[0]) == "4x3 float32 strides 1x4"


def test_figures_are_those_of_the_step():
    torch.manual_seed(0)
    model, batch = nn.Sequential(nn.Linear(5, 3), nn.ReLU()), torch.randn(7, 5)
    layers = {each.name: each.layer for each in surefoot.look(model, batch).modules}
    out = model(batch)
    out.mean().backward()
    gradient = math.sqrt(sum(each.grad.square().sum().item() for each in model.parameters()))
    assert layers["0"].gradient_norm == pytest.approx(gradient)
    assert layers["1"].zeros == pytest.approx((out == 0).double().mean().item())
    assert layers["1"].mean == pytest.approx(out.mean().item())
    assert 0 < layers["0"].update_ratio < 0.1


def test_a_module_that_is_given_stays_as_it_is():
    model = nn.Linear(4, 2)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    state = torch.get_rng_state()
    surefoot.look(model, torch.ones(2, 4))
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    assert model.weight.grad is None
    assert torch.equal(state, torch.get_rng_state())


def test_tensors_know_their_storage_maker_and_readers(odd):
    weight, turned, scale = odd.tensor("first.weight"), odd.tensor("turn(output)"), odd.tensor("scale")
    assert weight.shares == ("second.weight",)
    assert weight.made_by == "the model, as a parameter of first (Linear)"
    assert {each.rpartition(" of ")[2] for each in weight.read_by} == {"first", "second"}
    assert set(turned.shares) == {"second(output)", "(output)[0]"}
    assert (turned.made_by, turned.form.strides) == ("turn (Turned), with TBackward0", (1, 4))
    assert (scale.requires_grad, scale.storage_bytes) == (False, 16)
    assert odd.tensor("(input)").read_by == ("first (Linear)", "the model (Odd)")
    assert odd.tensor("absent") is None


def test_the_record_is_json(odd):
    assert from_json(Looked, to_json(odd)) == odd
    assert "4x3 float32 strides 1x4" in odd._repr_html_()


def test_a_script_stops_after_its_first_update(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    seen = look_at_script(str(script), ["3"])
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    assert seen.loss == (model(torch.ones(6, 4)) - 3).square().mean().item()
    assert [each.kind for each in seen.modules] == ["Sequential", "Linear", "Tanh", "Linear"]
    assert seen.modules[2].layer.saturated == 0


ON_CUDA = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 2048)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
__import__("pathlib").Path("written.txt").write_text("once")
for step in range(9):
    model(torch.randn(4, 8, device="cuda")).square().mean().backward()
    optimizer.step()
    assert step == 0
"""


def test_a_script_that_wants_a_gpu_is_looked_at_without_one(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    (tmp_path / "train.py").write_text(ON_CUDA)
    made = CliRunner().invoke(app, ["look", str(tmp_path / "train.py"), "--on", "t4", "--json"])
    assert made.exit_code == 0, made.output
    seen = json.loads(made.stdout)
    assert [each["name"] for each in seen["modules"]] == ["", "0", "1", "2"]
    weight = next(each for each in seen["tensors"] if each["name"] == "2.weight")
    assert weight["form"]["device"] == "cuda:0"
    assert weight["storage_bytes"] == 4 * 1024 * 2048
    assert seen["loss"] is None
    assert seen["graph"]
    assert not Path("/written.txt").exists()
    assert torch.ones(1).device.type == "cpu"


def test_a_script_without_a_model_is_refused(tmp_path):
    (tmp_path / "plain.py").write_text("print('hello')")
    with pytest.raises(RunError, match="called no model with gradients"):
        look_at_script(str(tmp_path / "plain.py"))


def test_the_command(tmp_path):
    words = ["look", "gpt", "layers=1", "width=16", "heads=2", "context=8", "global_batch_tokens=64"]
    text = CliRunner().invoke(app, [*words, "--depth", "1"], env={"COLUMNS": "80"})
    assert text.exit_code == 0
    assert "head     Linear     8x8x256 float32       4,096" in text.output
    assert "modules deeper inside are not shown" in text.output
    assert max(map(len, text.output.splitlines())) <= 80
    one = CliRunner().invoke(app, [*words, "--tensor", "head.weight"])
    assert "token.weight" in one.output
    wrong = CliRunner().invoke(app, [*words, "--tensor", "hed"])
    assert "did you mean head.weight" in str(wrong.exception)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    made = CliRunner().invoke(app, ["look", str(script), "--json", "--", "3"])
    assert [each["kind"] for each in json.loads(made.stdout)["modules"]] == ["Sequential", "Linear", "Tanh", "Linear"]


# ------------------------------------------------------------------------------------------- the graph of autograd


def test_the_picture_of_the_graph_has_every_operation_and_every_parameter(tmp_path):
    script, picture = tmp_path / "train.py", tmp_path / "loss.svg"
    script.write_text(SCRIPT)
    done = CliRunner().invoke(app, ["look", str(script), "1", "--graph", str(picture)])
    assert done.exit_code == 0, done.output
    drawn = ElementTree.fromstring(picture.read_text())
    texts = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    looked = look_at_script(str(script), ["1"])
    operations = [each for each in looked.graph if not each.leaf]
    assert operations[0].operation == "MeanBackward0"
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}rect"))) == len(operations)
    assert {"Mean", "Pow", "Sub", "Tanh", "Addmm", "T"} <= set(texts)
    assert {"0.weight 8x4 float32", "2.weight 1x8 float32"} <= set(texts)
    edges = sum(not looked.graph[taken].leaf for each in operations for taken in each.takes)
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}path"))) == edges


def test_what_cannot_be_drawn_is_refused():
    looked = Looked("mine", None, (), ())
    with pytest.raises(RunError, match="has no graph"):
        graph_svg(looked)
    chain = (*(GraphNode("AddBackward0", "", (number + 1,)) for number in range(MOST)), GraphNode("Add", "", ()))
    with pytest.raises(RunError, match="take fewer layers"):
        graph_svg(replace(looked, graph=chain))


def test_names_in_the_picture_are_only_text():
    node = GraphNode("AddBackward0", "</title><script>", (1,))
    leaf = GraphNode("AccumulateGrad", "", (), leaf="<b> & \x1b 2x2 float32")
    drawn = ElementTree.fromstring(graph_svg(Looked("<mine>", None, (), (), (node, leaf))))
    assert not [each for each in drawn.iter() if each.tag.endswith("script")]


@given(st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=30))
def test_every_operation_stands_above_those_that_take_its_result(takes):
    """Any graph without cycles, drawn: boxes of a row do not overlap, and edges lead downwards."""
    graph = tuple(
        GraphNode(
            "AddBackward0", "", tuple(sorted({number + 1 + step for step in steps if number + 1 + step < len(takes)}))
        )
        for number, steps in enumerate(takes)
    )
    drawn = ElementTree.fromstring(graph_svg(Looked("mine", None, (), (), graph)))
    rows = defaultdict(list)
    for box in drawn.iter("{http://www.w3.org/2000/svg}rect"):
        rows[box.get("y")].append((float(box.get("x")), float(box.get("width"))))
    for boxes in rows.values():
        for (x, width), (after, _) in pairwise(sorted(boxes)):
            assert x + width < after
    for path in drawn.iter("{http://www.w3.org/2000/svg}path"):
        numbers = [float(each) for each in re.findall(r"-?\d+", path.get("d"))]
        assert numbers[1] < numbers[-1]
