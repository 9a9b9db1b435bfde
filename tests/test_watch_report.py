"""Four troubles in scripts of one's own, each named by the report as the first thing to change."""

import pytest

from surefoot.reports.gather import report_of
from surefoot.watch import watch_script

SCRIPT = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{before}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 2048), nn.GELU(), nn.Linear(2048, 1024), nn.GELU(), nn.Linear(1024, 2))
{wrap}
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = TensorDataset(torch.randn(512, 64), torch.randint(0, 2, (512,)))
loader = DataLoader(data, batch_size=16, {loader})
batches, losses = iter(loader), []
for step in range(6):
    optimizer.zero_grad()
    for micro_batch in range(4):
        inputs, targets = next(batches)
        loss = nn.functional.cross_entropy(model(inputs), targets) / 4
        loss.backward()
        {each}
    optimizer.step()
{after}
"""
SLOW = """
def slowly(samples):
    time.sleep(0.5)
    return torch.utils.data.default_collate(samples)
"""
START = """
import tempfile
store = "file://" + tempfile.mkdtemp() + "/store"
torch.distributed.init_process_group("gloo", rank=0, world_size=1, init_method=store)
"""
TROUBLES = {
    "waiting-for-data": {"before": SLOW, "loader": "collate_fn=slowly"},
    "value-asked-in-every-micro-batch": {"each": "losses.append(loss.item())"},
    "tensors-kept-from-step-to-step": {"each": "losses.append(loss)"},
    "gradients-reduced-in-every-micro-batch": {
        "before": START,
        "wrap": "model = nn.parallel.DistributedDataParallel(model)",
        "after": "torch.distributed.destroy_process_group()",
    },
}  # fmt: skip
PLACES = {"before": "", "wrap": "", "loader": "", "each": "pass", "after": ""}


@pytest.mark.sweep
@pytest.mark.parametrize("trouble", [*TROUBLES, ""])
def test_the_report_names_what_to_change_first(trouble: str, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(**{**PLACES, **TROUBLES.get(trouble, {})}))
    watch_script(str(script), keep=tmp_path / "seen")
    sheet = report_of(tmp_path / "seen").sheets[0]
    named = [finding.check for finding in sheet.findings.findings]
    if trouble == "waiting-for-data" or not sheet.first or sheet.first.check != "waiting-for-data":
        assert (sheet.first.check if sheet.first else "") == trouble, named
    else:  # on a busy machine, a step of a millisecond may wait for its data too
        assert [name for name in named if name != "waiting-for-data"] == ([trouble] if trouble else [])
    assert sheet.timeline_of == "measured"


@pytest.mark.sweep
@pytest.mark.parametrize("each", ["losses.append(loss.detach())", "losses.append((loss.detach(), inputs))"])
def test_what_is_kept_without_its_graph_is_no_trouble(each: str, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(**{**PLACES, "each": each}))
    watch_script(str(script), keep=tmp_path / "seen")
    named = {finding.check for finding in report_of(tmp_path / "seen").sheets[0].findings.findings}
    assert named <= {"waiting-for-data"}


def test_a_value_that_is_read_now_and_then_is_no_trouble(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(**{**PLACES, "each": "if step % 10 == 2: losses.append(loss.item())"}))
    seen = watch_script(str(script))
    assert [each for each in seen.counted.accounts if each.name.startswith("syncs/")] == []


LOOSE = """
import torch
from torch import nn

model, gain = nn.Linear(4, 2), nn.Parameter(torch.ones(()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    (gain * model(torch.randn(8, 4))).square().mean().backward()
    optimizer.step()
"""


def test_what_a_script_leaves_behind_is_looked_at(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(LOOSE)
    assert [each.check for each in watch_script(str(script)).findings.findings] == ["unregistered-parameter"]
