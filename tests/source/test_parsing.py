"""A script that is edited between two watches in one process is read anew."""

from pathlib import Path

from surefoot.watch import watch_script

SCRIPT = """import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    x = torch.randn(16, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
"""


def test_lines_at_fault_are_those_of_the_edited_script(tmp_path: Path):
    script = tmp_path / "train.py"
    for lines_above in (0, 3):
        script.write_text("# a comment\n" * lines_above + SCRIPT)
        (finding,) = watch_script(str(script)).findings.findings
        assert finding.check == "missing-zero-grad"
        assert [(mark.line, mark.code.strip()) for mark in finding.marks[:1]] == [(7 + lines_above, "loss.backward()")]
