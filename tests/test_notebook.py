"""In a notebook: a watched cell changes the notebook's names as ever, and shows what it took."""

import torch

import surefoot


class Shell:
    """What of IPython's shell is used."""

    def __init__(self) -> None:
        self.magics, self.user_ns = {}, {"torch": torch}

    def register_magic_function(self, function, kind, name):
        self.magics[kind, name] = function

    def transform_cell(self, cell: str) -> str:
        return cell


CELL = """
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""


def test_a_watched_cell():
    shell = Shell()
    surefoot.load_ipython_extension(shell)
    seen = shell.magics["cell", "watch"]("", CELL)
    assert (seen.steps, shell.user_ns["step"]) == (8, 7)
    assert seen.steady.tally.total("flops/forward") == 2 * 3 * 4 * 2
    assert "this cell" in seen._repr_html_()
    stopped = shell.magics["cell", "watch"]("5", CELL)
    assert (stopped.steps, shell.user_ns["step"]) == (5, 4)
