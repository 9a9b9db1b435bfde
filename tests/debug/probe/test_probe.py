"""probe, from the command line: a script with wrong pairs, a clean one, and what a rerun leaves behind.

Each probe is a few trainings in processes of their own, so these tests take seconds.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.debug.probe.copies import Copies
from surefoot.debug.probe.probe import probe
from surefoot.errors import RunError
from surefoot.records.codec import from_json, to_json
from surefoot.records.probed import Probed
from tests.command_line import process as surefoot

SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(sys.argv[1]))
x = torch.randn(900, 4)
y = (x[:, 0] + x[:, 1] > 0).long()
trained, held_out = TensorDataset(x[:600], y[:600]), TensorDataset(x[600:], y[600:])
train = DataLoader(trained, 20, shuffle=True, num_workers=2)
valid = DataLoader(held_out, 100)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    for features, labels in train:
        loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = sum((model(features).argmax(1) == labels).sum().item() for features, labels in valid)
    print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right / 300:.4f}")
torch.save(model.state_dict(), "weights.pt")
open("done.txt", "w").write("done")
"""
WRONG = SCRIPT.replace("y[:600])", "y[:600].roll(-1))").replace("model(features)", "model(features[:, [0, 1, 3, 3]])")
LOADER_LINE = next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if "in train:" in line)


def probed(folder: Path, text: str) -> Probed:
    """The record of a probe from the command line; the folder is where the script runs."""
    (folder / "train.py").write_text(text)
    done = surefoot("probe", "train.py", "--updates", "60", "--jobs", "1", "--json", "--", "3", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "CPU seconds" in done.stderr
    assert "accuracy" not in done.stderr
    return from_json(Probed, done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("wrong")


@pytest.fixture(scope="module")
def wrong(folder) -> Probed:
    return probed(folder, WRONG)


def of(record: Probed, name: str):
    return next(each for each in record.experiments if each.name == name)


def test_wrong_pairs_are_found_and_named_as_shifted(wrong):
    found = {each.check: each for each in wrong.findings.findings}
    assert "shifted by one" in found["nothing-learned-from-pairs"].seen
    mark = found["nothing-learned-from-pairs"].marks[0]
    assert mark.line == LOADER_LINE
    assert mark.code.strip().startswith("for features, labels in train")


def test_a_column_that_no_output_uses_is_found(wrong):
    found = {each.check: each for each in wrong.findings.findings}
    assert "1 of 4 places of dimension 1" in found["unused-part-of-input"].seen
    assert ": 2." in found["unused-part-of-input"].seen


def test_inputs_are_told_from_targets(wrong):
    assert wrong.inputs == ("item 0 of the batch",)
    assert wrong.targets == ("item 1 of the batch",)
    assert of(wrong, "one sample disturbed").outcome == "as expected"
    assert "without workers" in wrong.notes[0]


RECIPE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe

x = torch.randn(900, 4, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] + x[:, 1] > 0).long()


def accuracy(model, batch):
    return {"accuracy": ((model(batch[0]).argmax(1) == batch[1]).sum(), len(batch[1]))}


def wrong() -> Recipe:
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)),
        data=lambda: TensorDataset(x[:600], y[:600].roll(-1)),
        evaluation=lambda: TensorDataset(x[600:], y[600:]),
        metrics=accuracy,
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        micro_batch_size=20,
        max_steps=120,
        evaluate_every=60,
    )
"""


def test_a_recipe_is_probed_by_check(tmp_path):
    (tmp_path / "small.py").write_text(RECIPE)
    done = surefoot("check", "small.py", "--probe", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = from_json(Probed, done.stdout)
    assert record.script == "small.py"
    found = {each.check: each for each in record.findings.findings}
    assert "nothing-learned-from-pairs" in found
    assert "shifted by one" in found["nothing-learned-from-pairs"].seen
    outcomes = {each.name: each for each in record.experiments}
    assert "accuracy" in outcomes["targets permuted in evaluation"].seen
    first, other = outcomes["another seed"].seen.removeprefix("loss ").split(" after")[0].split(" and ")
    assert first != other
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["small.py"]


def test_reruns_leave_nothing_beside_the_script(wrong, folder):
    assert {each.name for each in folder.iterdir()} <= {"train.py", "__pycache__"}


def test_the_record_is_read_again(wrong):
    assert from_json(Probed, to_json(wrong)) == wrong
    assert wrong.copies > 20
    assert wrong.cpu_seconds > 0


def test_a_clean_script_gives_a_table_and_no_finding(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.replace("sys.argv[1]", "3"))
    done = surefoot("probe", "train.py", "--updates", "60", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "nothing found in" in done.stdout
    assert "accuracy" in done.stdout
    assert done.stdout.count("as expected") >= 5


def test_a_script_that_does_not_train_is_refused(tmp_path):
    (tmp_path / "idle.py").write_text("print('nothing to do')")
    with pytest.raises(RunError, match="made no update"):
        probe(str(tmp_path / "idle.py"))


def test_a_script_that_fails_says_so(tmp_path):
    (tmp_path / "fails.py").write_text("raise ValueError('no data')\nprint()")
    with pytest.raises(RunError, match="ValueError: no data"):
        probe(str(tmp_path / "fails.py"))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing.py", None, "no script"),
        ("recipe.py", "def own() -> Recipe: ...", "surefoot check"),
        ("names.py", "A = 1", "does nothing"),
    ],
)
def test_what_is_no_script_is_refused(tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    done = CliRunner().invoke(app, ["probe", str(tmp_path / name)])
    assert isinstance(done.exception, RunError)
    assert said in str(done.exception)


def _copied(body: str) -> list[str]:
    """What copies of a process write, which is forked in a process of its own."""
    program = (
        "import json, os, sys\n"
        "from surefoot.debug.probe.copies import Copies\n"
        "copies, file = Copies(2, 60.0), sys.argv[1]\n"
        f"{body}\n"
        "with open(file, 'a') as out: out.write(f'{place} {copies.number}\\n')\n"
        "copies.end()\n"
        "os._exit(0)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "said"
        subprocess.run([sys.executable, "-c", program, str(file)], check=True, timeout=120)
        return sorted(file.read_text().splitlines())


def test_the_last_evaluation_is_copied_when_the_script_has_ended():
    said = _copied("for place in range(3):\n    copies.hold()\n    if copies.number is not None: break")
    assert said == ["2 0", "2 1", "2 None"]


def test_copies_are_made_at_once_and_only_once():
    said = _copied("for place in range(3):\n    copies.make()\n    if copies.number is not None: break")
    assert said == ["0 0", "0 1", "2 None"]


def test_without_changes_nothing_is_copied():
    copies, here = Copies(0, 60.0), os.getpid()
    copies.hold()
    copies.make()
    copies.end()
    assert os.getpid() == here
    assert copies.number is None


def test_help_names_an_example():
    done = CliRunner().invoke(app, ["probe", "--help"])
    assert "surefoot probe train.py" in done.output
    assert done.exit_code == 0
