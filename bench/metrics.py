"""metrics: accuracy on Fashion-MNIST: the best step kept and exported, an early stop, and the same figure in any split.

    python bench/metrics.py [--quick] [--folder DIR] [--out FILE]

It needs the files of Debian's package dataset-fashion-mnist. It trains `fashion`, and once more with patience. Then the
trained weights are scored again with micro-batches of 1, 7 and 64 samples on 1, 2 and 4 ranks: held-out and test
accuracy must be equal to the last digit. `--quick` trains 200 steps and tries four of the nine splits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from record import write_record

SIZES, RANKS = (1, 7, 64), (1, 2, 4)
SCORED = """
import sys
from dataclasses import replace
import torch
from safetensors.torch import load_model
from surefoot import load_recipe, train

folder, weights, size, ranks, run = sys.argv[1:]
recipe = load_recipe("fashion", [f"folder={folder}", "max_steps=1"])

def trained():
    model = recipe.model()
    load_model(model, weights)
    return model

train(
    replace(
        recipe, model=trained, micro_batch_size=int(size), global_batch_tokens=1792, schedule=None, save_every=None,
        best=None, dp_replicate=int(ranks), dp_shard=1, optimizer=lambda each: torch.optim.SGD(each, lr=0.0),
    ),
    path=run,
)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    import surefoot

    steps = 200 if asked.quick else 2000
    with tempfile.TemporaryDirectory() as here:

        def fashion(*words: str, run: str) -> surefoot.Run:
            recipe = surefoot.load_recipe("fashion", [f"folder={asked.folder}", f"max_steps={steps}", *words])
            return surefoot.train(recipe, path=f"{here}/{run}")

        whole = fashion(run="whole")
        early = fashion("patience=1", "lr=0.02", run="early")
        print(f"trained: {_told(whole)}\nwith patience: {_told(early)}", flush=True)
        splits = [(size, ranks) for size in SIZES for ranks in RANKS]
        found = {}
        for size, ranks in splits[::2][:4] if asked.quick else splits:
            found[f"{size} x {ranks}"] = scores = _split(asked.folder, whole, size, ranks, Path(here))
            print(f"micro-batch {size:2}, {ranks} ranks: {scores}", flush=True)
    equal = sum(each == (whole.tests["test"]["accuracy"]) for each in found.values())
    if asked.out is not None:
        write_record(asked.out, {"splits": found, "test": whole.tests, "best": whole.best_value})
    print(
        f"RESULT accuracy={whole.tests['test']['accuracy']:.4f} best_step={whole.best_step} steps={whole.steps} "
        f"weights_step={whole.weights_step} stopped_early_at={early.steps} splits={len(found)} equal={equal}"
    )


def _told(run: object) -> str:
    return f"{run.steps} steps, best {run.best_value:.4f} at step {run.best_step}, test {run.tests['test']}"  # type: ignore[attr-defined]


def _split(folder: str, run: object, size: int, ranks: int, here: Path) -> float:
    """The test accuracy of the trained weights in this split."""
    script, to = here / "scored.py", here / f"scored-{size}-{ranks}"
    script.write_text(SCORED, encoding="utf-8")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    words = [folder, str(run.weights), str(size), str(ranks), str(to)]  # type: ignore[attr-defined]
    done = subprocess.run(
        [sys.executable, *launch, str(script), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    record = json.loads((to / "run.json").read_text())
    return record["tests"]["test"]["accuracy"]


if __name__ == "__main__":
    main()
