"""The lines that findings mark: the cause of the bug, not the line where it was noticed."""

from pathlib import Path

import pytest

from surefoot.checks.causes import CAUSES, PARTNERS
from surefoot.checks.edits import EDITS
from surefoot.checks.marks import loss_line, marked
from surefoot.checks.registry import CHECKS
from surefoot.records.codec import from_json, to_json
from surefoot.records.finding import Edit, Finding, Findings

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(1)
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(x) * self.scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        features = x.detach()
        return torch.softmax(self.head(features), dim=-1)


class Rows(Dataset):
    def __getitem__(self, i):
        return torch.randn(8), 1


def evaluate(model, loader):
    with torch.no_grad():
        for x, y in loader:
            model(x)


model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.blocks.parameters(), lr=0.1)
loader = DataLoader(Rows(), batch_size=4)
losses = []
for epoch in range(3):
    model.train()
    for x, y in loader:
        torch.manual_seed(0)
        logits = model(x)
        loss = criterion(logits, y)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    evaluate(model, loader)
"""
LINES = SCRIPT.splitlines()


def line_of(text: str) -> int:
    (found,) = [number for number, line in enumerate(LINES, 1) if text in line]
    return found


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    return file


def finding(check: str, where: str, seen: str = "") -> Finding:
    return Finding(check, "error", seen, where, "", "")


def mark(found: Finding, script: Path) -> Finding:
    return marked(Findings("", (), (found,)), str(script)).findings[0]


CASES = [
    ("softmax-before-cross-entropy", "loss.backward()", ["torch.softmax(", "criterion(logits"]),
    ("detached-loss", "loss.backward()", ["x.detach()", "loss.backward()"]),
    ("kept-losses", "loss.backward()", ["losses.append", "loss.backward()"]),
    ("missing-zero-grad", "optimizer.step()", ["loss.backward()", "optimizer.step()"]),
    ("all-targets-ignored", "criterion(logits", ["criterion(logits"]),
    ("training-mode-in-evaluation", "Net", ["with torch.no_grad()", "            model(x)"]),
    ("reseeded-steps", "Net", ["torch.manual_seed"]),
    ("unregistered-buffer", "blocks.0.scale", ["self.scale = "]),
    ("samples-mixed-in-batch", "blocks.1.inner", ["self.inner = "]),
    ("parameter-outside-optimizer", "head.1", ["torch.optim.SGD", "self.head = "]),
    ("sorted-training-data", "Rows", ["DataLoader(Rows()"]),
    ("input-ignored", "Net", [22]),
    ("swapped-betas", "SGD", ["torch.optim.SGD"]),
]


@pytest.mark.parametrize(("check", "where", "lines"), CASES, ids=[case[0] for case in CASES])
def test_the_cause_is_marked_and_then_its_partner(check: str, where: str, lines: list[str | int], script: Path) -> None:
    known = any(where in line for line in LINES) and where != "Net" and "(" in where
    found = mark(finding(check, f"{script}:{line_of(where)}" if known else where), script)
    assert [each.line for each in found.marks] == [each if isinstance(each, int) else line_of(each) for each in lines]
    assert all(each.code == LINES[each.line - 1] for each in found.marks)


CALLS = """\
import torch
from torch import nn


class Critic(nn.Module):
    def forward(self, x):
        return x


class Stored:
    def __getitem__(self, i):
        self.rows[i] += 1
        return self.rows[i]


def evaluate(net, x):
    net.eval()
    out = net(x)
    with torch.no_grad():
        net(x)
    return out


critic = Critic()
slow = Critic()
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
value = critic(torch.ones(2)) - slow(torch.ones(2))
net = critic
evaluate(net, torch.ones(2))
"""


@pytest.mark.parametrize(
    ("check", "where", "line"),
    [
        ("gradients-into-fixed-network", "Critic 2", "value = critic(torch.ones(2)) - slow(torch.ones(2))"),
        ("graph-built-in-evaluation", "Critic", "    out = net(x)"),
        ("changing-samples", "Stored", "        self.rows[i] += 1"),
    ],
)
def test_calls_and_writes_are_marked_in_place_of_a_class(check: str, where: str, line: str, tmp_path: Path) -> None:
    script = tmp_path / "calls.py"
    script.write_text(CALLS)
    found = mark(finding(check, where), script).marks[0]
    assert found.code == line
    if check.startswith("gradients"):
        assert found.code[found.first :].startswith("slow(")


def test_the_part_at_fault_is_marked(script: Path) -> None:
    first, second = mark(
        finding("softmax-before-cross-entropy", f"{script}:{line_of('loss.backward()')}"), script
    ).marks
    assert first.code[first.first : first.last] == "torch.softmax(self.head(features), dim=-1)"
    assert second.code[second.first : second.last] == "criterion(logits, y)"


def test_columns_count_characters_and_not_bytes(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("verlüst = model(x, 'größe').detach()\nverlüst.backward()\n")
    (found, *_) = mark(finding("detached-loss", f"{file}:2"), file).marks
    assert found.code[found.first : found.last] == "model(x, 'größe').detach()"


def test_a_place_that_was_a_line_moves_to_the_cause_and_a_name_stays(script: Path) -> None:
    at_backward = finding("softmax-before-cross-entropy", f"{script}:{line_of('loss.backward()')} (lightning)")
    assert mark(at_backward, script).where == f"{script}:{line_of('torch.softmax(')} (lightning)"
    assert mark(finding("reseeded-steps", "Net"), script).where == "Net"


def test_a_finding_without_a_line_stays_as_it_is(script: Path) -> None:
    found = finding("unsharded-data", "the data")
    assert mark(found, script) == found
    assert mark(found, script.with_name("missing.py")) == found


def test_a_name_that_is_made_of_itself_is_followed_to_an_end(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("def again(x):\n    y = again(x)\n    return y.parts.y\n\nx = again(x)\nx = x.x(x)\nx.backward()\n")
    assert mark(finding("detached-loss", f"{file}:7"), file).marks


def test_the_loss_of_a_backward_is_the_line_that_computes_it(script: Path) -> None:
    backward = f"{script}:{line_of('loss.backward()')}"
    assert loss_line(backward, "") == f"{script}:{line_of('criterion(logits')}"
    assert loss_line("", "") == ""


def test_a_module_that_is_imported_is_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_losses.py").write_text("def own(x):\n    return x.detach()\n")
    file = tmp_path / "script.py"
    file.write_text("from own_losses import own\nloss = own(x)\nloss.backward()\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("own_losses")
    (found, *_) = mark(finding("detached-loss", f"{file}:3"), file).marks
    assert (Path(found.file).name, found.line) == ("own_losses.py", 2)


def test_every_cause_belongs_to_a_check() -> None:
    assert set(CAUSES) | set(PARTNERS) | set(EDITS) <= set(CHECKS)


# ------------------------------------------------------------------------------------------------------------- edits


def edit_of(check: str, source: str, where: str, tmp_path: Path, seen: str = "") -> Edit | None:
    file = tmp_path / f"script{len(list(tmp_path.iterdir()))}.py"  # a file is read once in a process
    file.write_text(source)
    number = next((n for n, line in enumerate(source.splitlines(), 1) if where in line), 0)
    return mark(finding(check, f"{file}:{number}" if number else where, seen), file).edit


LOOP = """\
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters())
for x, y in batches:
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
"""
SPREAD = "sub broadcast (64, 1) and (64,) to (64, 64)"


def test_zero_grad_is_written_before_the_only_backward(tmp_path: Path) -> None:
    found = edit_of("missing-zero-grad", LOOP, "optimizer.step()", tmp_path)
    assert found is not None
    assert (found.line, found.before, found.after) == (7, "", "    optimizer.zero_grad()")


@pytest.mark.parametrize(
    "source",
    [
        LOOP.replace("for x", "optimizer.zero_grad()\nfor x"),
        LOOP + "    loss.backward()\n",
        LOOP.replace("    optimizer.step()", "    if ready:\n        optimizer.step()"),
        LOOP.replace("for x", "other = torch.optim.SGD(model.parameters())\nfor x"),
    ],
    ids=["it stands elsewhere", "two backwards", "an update now and then", "two optimizers"],
)
def test_no_zero_grad_where_it_is_not_certain(source: str, tmp_path: Path) -> None:
    assert edit_of("missing-zero-grad", source, "optimizer.step()", tmp_path) is None


def test_the_side_with_a_dimension_more_is_squeezed(tmp_path: Path) -> None:
    found = edit_of("broadcast-loss", LOOP, "loss = ", tmp_path, SPREAD)
    assert found is not None
    assert found.after == "    loss = ((model(x).squeeze(-1) - y) ** 2).mean()"
    called = LOOP.replace("((model(x) - y) ** 2).mean()", "nn.functional.mse_loss(model(x), y * 2)")
    found = edit_of("broadcast-loss", called, "loss = ", tmp_path, "mse_loss broadcast (8,) and (8, 1) to (8, 8)")
    assert found is not None
    assert found.after.endswith("mse_loss(model(x), (y * 2).squeeze(-1))")


@pytest.mark.parametrize(
    ("line", "seen"),
    [("((model(x) - y) ** 2).mean()", "sub broadcast (64, 1) and (32,) to (64, 32)"), ("f(p - q - r)", SPREAD)],
)
def test_nothing_is_squeezed_where_it_is_not_certain(line: str, seen: str, tmp_path: Path) -> None:
    source = LOOP.replace("((model(x) - y) ** 2).mean()", line)
    assert edit_of("broadcast-loss", source, "loss = ", tmp_path, seen) is None


def test_a_kept_loss_is_detached_unless_it_is_trained(tmp_path: Path) -> None:
    kept = LOOP + "    losses.append(loss)\n"
    found = edit_of("kept-losses", kept, "loss.backward()", tmp_path)
    assert found is not None
    assert found.after == "    losses.append(loss.detach())"
    assert edit_of("kept-losses", kept + "sum(losses).backward()\n", "loss.backward()", tmp_path) is None


def test_eval_is_written_before_an_evaluation_if_training_calls_train_again(script: Path) -> None:
    found = mark(finding("training-mode-in-evaluation", "Net"), script).edit
    assert found is not None
    assert (found.line, found.after) == (line_of("with torch.no_grad()"), "    model.eval()")
    script.write_text(SCRIPT.replace("    model.train()\n", "    pass\n"))
    other = script.rename(script.with_name("other.py"))
    assert mark(finding("training-mode-in-evaluation", "Net"), other).edit is None


def test_anomaly_mode_is_removed(tmp_path: Path) -> None:
    source = "torch.autograd.set_detect_anomaly(True)\n" + LOOP
    found = edit_of("anomaly-mode-in-training", source, "optimizer.step()", tmp_path)
    assert found is not None
    assert (found.line, found.before, found.after) == (1, source.splitlines()[0], "")


# ----------------------------------------------------------------------------------------------------------- records


def test_marks_and_edits_survive_json_and_old_records_are_read(script: Path) -> None:
    found = mark(finding("training-mode-in-evaluation", "Net"), script)
    assert from_json(Finding, to_json(found)) == found
    old = '{"check": "a", "severity": "error", "seen": "", "where": "", "why": "", "remedy": ""}'
    assert from_json(Finding, old) == finding("a", "")
