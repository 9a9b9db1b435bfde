"""Whether the source of a script reorders anything: a slice that leaves out the last item does not."""

import pytest

from surefoot.checks.samples.rows_apart import reorders


@pytest.mark.parametrize(
    ("line", "reordered"),
    [
        ("inputs, targets = items[:-1], items[1:]", False),
        ("first = items[-1:]", False),
        ("back = items[::-1]", True),
        ("back = items[10:0:-1]", True),
        ("back = items[:, ::-1]", True),
        ("every = items[::2]", False),
    ],
)
def test_only_a_negative_step_reverses(tmp_path, line, reordered):
    file = tmp_path / "train.py"
    file.write_text(f"items = read()\n{line}\n")
    assert reorders(str(file)) == reordered
