"""A CUDA build of torch without a GPU is a CPU. The README's commands run so in .ci/fresh."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import surefoot

PACKAGE = Path(surefoot.__file__).parent
BUILD = Path(__file__).parent / "cuda_build"
SCRIPT = """
import torch, surefoot
from surefoot.world.world import World
assert torch.accelerator.current_accelerator().type == "cuda"
assert World().device.type == "cpu"
recipe = surefoot.load_recipe("regression", ["samples=64", "max_steps=2"])
assert surefoot.check(recipe).findings == ()
print(surefoot.train(recipe, path="run").steps)
"""


def test_check_and_train_run_on_the_cpu(tmp_path):
    paths = os.pathsep.join([str(BUILD), *sys.path])
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout == "2\n", done.stderr


def test_one_place_asks_for_the_accelerator():
    asking = [
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "current_accelerator"
    ]
    assert asking == ["world/device.py"]
