"""The hook for pre-commit: the manifest is accepted, and a recipe with a silent bug is not committed."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
pytest.importorskip("pre_commit")

RECIPE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from surefoot import Recipe


def loss(model, batch):
    x, y = batch
    return nn.functional.cross_entropy(model(x).softmax(1), y, reduction="sum"), len(y)


def buggy(hidden: int = 4) -> Recipe:
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2)),
        data=lambda: TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))),
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters),
        micro_batch_size=8,
        max_steps=4,
    )
"""


def called(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def committed(folder: Path, **files: str) -> Path:
    """A git repository that holds these files."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        done = called(*git, *words, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def test_pre_commit_accepts_the_manifest():
    done = called(sys.executable, "-m", "pre_commit", "validate-manifest", ".pre-commit-hooks.yaml", cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_a_recipe_with_a_silent_bug_is_not_committed(tmp_path, monkeypatch):
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    ours = committed(tmp_path / "ours", **{"__pre-commit-hooks__yaml": (ROOT / ".pre-commit-hooks.yaml").read_text()})
    hook = {"id": "surefoot-check", "args": ["recipe.py", "hidden=8"]}
    rev = called("git", "rev-parse", "HEAD", cwd=ours).stdout.strip()
    config = {"repos": [{"repo": str(ours), "rev": rev, "hooks": [hook]}]}
    theirs = committed(tmp_path / "theirs", recipe__py=RECIPE, **{"__pre-commit-config__yaml": yaml.safe_dump(config)})
    done = called(sys.executable, "-m", "pre_commit", "run", "--all-files", cwd=theirs)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "softmax-before-cross-entropy" in done.stdout
