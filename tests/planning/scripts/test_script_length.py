"""The length of a planned script's run: its steps are read from what the script made, or counted from its loader."""

from textwrap import dedent

import pytest

from surefoot.planning.scripts.plan_script import plan_script

LOOP = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(40, 8), torch.randn(40, 1))
model = torch.nn.Linear(8, 1).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=1):
            model(x.to("cuda"))
            break
    for i, (x, y) in enumerate(DataLoader(data, batch_size=4)):
        (model(x.to("cuda")) - y.to("cuda")).square().mean().backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
"""
LIGHTNING = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset

class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        return (self.line(batch[0]) - batch[1]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

loader = DataLoader(TensorDataset(torch.randn(40, 8), torch.randn(40, 1)), batch_size=4)
trainer = lightning.Trainer({length}, accumulate_grad_batches=2, logger=False, enable_checkpointing=False)
trainer.fit(Line(), loader)
"""
TRANSFORMERS = """
import torch
from transformers import Trainer, TrainingArguments

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 1)
    def forward(self, x, labels):
        return {{"loss": (self.line(x) - labels).square().mean()}}

data = [{{"x": torch.randn(8), "labels": torch.randn(1)}} for _ in range(40)]
common = dict(output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[])
Trainer(Line(), TrainingArguments({length}, **common), train_dataset=data).train()
"""


def steps_of(folder, source: str, **given) -> tuple[int | None, str]:
    (folder / "train.py").write_text(dedent(source))
    plan = plan_script([str(folder / "train.py")], on="t4", **given)
    return plan.steps, "\n".join(plan.script)


def test_an_epoch_is_counted_from_the_loader_that_the_script_trains_on(tmp_path):
    steps, said = steps_of(tmp_path, LOOP)
    assert steps is None
    assert "an epoch of its loader is 5 steps; give --epochs or --steps" in said
    steps, said = steps_of(tmp_path, LOOP, epochs=3)
    assert steps == 15
    assert "an epoch" not in said


@pytest.mark.sweep
@pytest.mark.parametrize(("length", "steps"), [("max_epochs=3", 15), ("max_steps=7", 7), ("max_epochs=-1", None)])
def test_lightnings_trainer_says_how_many_steps_it_makes(tmp_path, length, steps):
    pytest.importorskip("lightning")
    assert steps_of(tmp_path, LIGHTNING.format(length=length))[0] == steps


@pytest.mark.sweep
@pytest.mark.parametrize(("length", "steps"), [("num_train_epochs=3", 15), ("max_steps=7", 7)])
def test_the_trainer_of_transformers_says_how_many_steps_it_makes(tmp_path, length, steps):
    pytest.importorskip("transformers")
    assert steps_of(tmp_path, TRANSFORMERS.format(length=length))[0] == steps
    assert steps_of(tmp_path, TRANSFORMERS.format(length=length), epochs=4)[0] == 20
