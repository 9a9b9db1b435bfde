"""The notebook of the three paths: it runs from top to bottom and shows what it promises."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "notebooks" / "three_paths.ipynb"
SECONDS_PER_CELL = 600

PROMISED: dict[str, tuple[str, ...]] = {
    "watch house_prices.py": ("broadcast-loss", "house_prices.py:18"),
    "watch fixed.py": ("nothing found",),
    "plan llama size=8b precision=bf16-mixed max_steps=200000 --on 8x": ("fits", "days"),
    "surefoot.plan(": ("width 256: ", "width 512: ", "fits: True"),
    "--launch slurm": ("#SBATCH --nodes=2", "srun"),
    "look gpt": ("one step of", "Embedding"),
    "%%watch": ("kept-losses",),
}
"""For each cell, by a part of its source, what it prints."""


def cells() -> list[dict]:
    return [each for each in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if each["cell_type"] == "code"]


def test_it_is_kept_without_outputs_and_has_the_script_of_the_readme():
    assert [each for each in cells() if each["outputs"] or each["execution_count"]] == []
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = re.search(r'```python title="house_prices.py"\n(.*?)```', readme, re.DOTALL)[1]
    assert f"%%writefile house_prices.py\n{script}".rstrip() in {"".join(each["source"]) for each in cells()}


def test_every_promise_is_of_one_cell():
    sources = ["".join(each["source"]) for each in cells()]
    assert {part: sum(part in each for each in sources) for part in PROMISED} == dict.fromkeys(PROMISED, 1)


@pytest.mark.long
def test_it_runs_and_shows_what_it_promises(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="the notebook is read with nbformat")
    nbclient = pytest.importorskip("nbclient", reason="the notebook is run by nbclient")
    pytest.importorskip("ipykernel", reason="the notebook needs a kernel")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=SECONDS_PER_CELL, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    for part, promised in PROMISED.items():
        printed = next(shown(each) for each in notebook.cells if each.cell_type == "code" and part in each.source)
        for text in promised:
            assert text in printed, printed


def shown(cell) -> str:
    """What a cell printed and displayed, without colours."""
    texts = [each.get("text", "") or json.dumps(each.get("data", {})) for each in cell.outputs]
    return re.sub(r"\x1b\[[\d;]*m", "", "".join(texts))
