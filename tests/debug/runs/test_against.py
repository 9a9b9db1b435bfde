"""watch --against: a script that computes the same agrees; else update, module, operator and line are named."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.debug.runs.against import against
from surefoot.debug.runs.traced_script import trace_script
from surefoot.errors import RunError
from surefoot.records.compared import Scripts
from surefoot.reports.compared import scripts_text
from surefoot.reports.console import as_text

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        x = self.body(x)
        x = torch.relu(x)  # activation
        return self.head(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1000):
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    assert step < 2, "the script went on"
"""
LINE = next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if "# activation" in line)
CHANGES = {
    "agrees": ("torch.relu(x)", "torch.relu(x).clone()"),
    "arithmetic": ("torch.relu(x)", "nn.functional.gelu(x)"),
    "update": ("lr=0.1", "lr=0.2"),
    "labels": ("torch.randint(0, 2, (6,))", "1 - torch.randint(0, 2, (6,))"),
    "parameters": ("manual_seed(0)", "manual_seed(1)"),
}


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> Path:
    """The fingerprints of the script before any change."""
    folder = tmp_path_factory.mktemp("before")
    (folder / "before.py").write_text(SCRIPT)
    done = CliRunner().invoke(app, ["watch", str(folder / "before.py"), "--trace", str(folder / "before.json")])
    assert (done.exit_code, "3 updates traced" in done.output) == (0, True), done.output
    return folder / "before.json"


def changed(name: str, folder: Path) -> str:
    (folder / f"{name}.py").write_text(SCRIPT.replace(*CHANGES[name]))
    return str(folder / f"{name}.py")


def test_an_operation_more_that_changes_no_value_agrees(before, tmp_path):
    made = against(changed("agrees", tmp_path), str(before))
    assert (made.agrees, made.updates) == (True, 3)
    assert "agree: 3 updates, bit for bit" in as_text(scripts_text(made), width=300)


def test_two_scripts_are_run_and_the_change_is_named_with_its_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("before.py").write_text(SCRIPT)
    after = Path(changed("arithmetic", tmp_path)).name
    done = CliRunner().invoke(app, ["watch", after, "--against", "before.py", "--steps", "1", "--json"])
    assert done.exit_code == 1, done.output
    record = json.loads(done.stdout)
    assert (record["step"], record["cause"], record["updates"]) == (1, "arithmetic", 1)
    assert (record["parted"]["module"], record["parted"]["operation"]) == ("head", "addmm")
    assert record["parted"]["largest"] > 0.01
    assert record["parted"]["first_line"].endswith(f"before.py:{LINE + 1}")
    assert record["parted"]["only_second"] == [f"`gelu` ({after}:{LINE})"] or record["parted"]["only_second"][
        0
    ].endswith(f"{after}:{LINE})")


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["update", "labels", "parameters"])
def test_what_differs_first_is_said(name, before, tmp_path):
    made = against(changed(name, tmp_path), str(before))
    assert (made.step, made.cause) == (1, "batch" if name == "labels" else name)
    if name == "labels":
        assert "was given other values" in made.said
        assert made.parted.phase == "loss"
        assert made.parted.largest is None
    assert "differ from update 1 on" in as_text(scripts_text(made), width=300)


def test_a_script_that_ends_early_or_is_missing_is_refused(before, tmp_path):
    (tmp_path / "raises.py").write_text("raise ValueError('mine')")
    with pytest.raises(RunError, match="ended with exit code 1"):
        trace_script(str(tmp_path / "raises.py"), (), updates=1)
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "wrong.py").write_text("a = 1\ndef f(:\n")
    with pytest.raises(RunError, match=r"wrong.py, line 2: Python cannot read it: invalid syntax"):
        trace_script(str(tmp_path / "wrong.py"), (), updates=1)
    (tmp_path / "bytes.py").write_bytes(b"\0\1")
    with pytest.raises(RunError, match=r"bytes.py: Python cannot read it: source code string cannot contain null"):
        trace_script(str(tmp_path / "bytes.py"), (), updates=1)
    with pytest.raises(RunError, match="made no update"):
        against(str(tmp_path / "empty.py"), str(before))
    with pytest.raises(RunError, match="no script"):
        against("missing.py", str(before))


def test_a_script_alone_is_only_traced():
    assert "2 updates traced" in as_text(scripts_text(Scripts("", "a.py", 2)))
