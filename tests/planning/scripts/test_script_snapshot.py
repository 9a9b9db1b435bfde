"""A CUDA memory snapshot of a script beside the script's plan, through the command line."""

import pickle

from typer.testing import CliRunner

from surefoot.cli.main import app

TRAIN = """
import torch
model = torch.nn.Linear(1024, 1024, bias=False).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(9):
    model(torch.randn(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
MIB = 1 << 20


def snapshot_of(folder) -> str:
    """The snapshot of a GPU on which only the weight is live, and a MiB more than it takes."""
    stack = [{"filename": "/x/torch/nn/modules/linear.py", "name": "__init__", "line": 1}]
    block = {"size": 5 * MIB, "requested_size": 5 * MIB, "state": "active_allocated", "address": 1, "frames": stack}
    segment = {"device": 0, "address": 1, "total_size": 20 * MIB, "blocks": [block], "segment_type": "large"}
    file = folder / "snapshot.pickle"
    file.write_bytes(pickle.dumps({"segments": [segment], "device_traces": []}))
    return str(file)


def explain(*words: str):
    return CliRunner().invoke(app, ["explain", *words], env={"COLUMNS": "100"})


def test_a_snapshot_is_compared_with_the_plan_of_its_script(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    done = explain(snapshot_of(tmp_path), "--on", "t4", "--", str(tmp_path / "train.py"))
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["parameters", "5.00", "MiB", "4.00", "MiB", "+1.00", "MiB"] in rows
    assert ["gradients", "0", "B", "4.00", "MiB", "-4.00", "MiB"] in rows
    assert any(row[:3] == ["reserved", "20.00", "MiB"] and len(row) == 7 for row in rows)


def test_a_script_needs_its_gpu(tmp_path):
    assert "name the script and its GPU" in explain(snapshot_of(tmp_path), "--", "train.py").output
