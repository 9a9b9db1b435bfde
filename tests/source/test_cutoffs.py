"""Where numbers that leave torch are cut at one half, read from the source."""

import pytest

from surefoot.source.cutoffs import cut_at_half

pytestmark = pytest.mark.sweep

CUT = {
    "p = z.numpy() > 0.5": True,
    "p = [float(each > 0.5) for each in z.tolist()]": True,
    "s = z.numpy()\np = s >= 0.5": True,
    "half = 0.5\ns = z.numpy()\np = s > half": True,
    "p = np.round(z.numpy())": True,
    "s = z.numpy()\np = 1 / (1 + np.exp(-s)) > 0.5": False,
    "p = torch.sigmoid(z).numpy() > 0.5": False,
    "p = z.numpy() > 0": False,
    "shown = round(z.item(), 3)": False,
}


@pytest.mark.parametrize(("text", "cut"), CUT.items())
def test_numbers_that_leave_torch_are_followed_to_where_they_are_cut(text, cut, tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(text)
    number = next(n for n, line in enumerate(text.splitlines(), 1) if "z" in line)
    assert cut_at_half(str(file), number) is cut
