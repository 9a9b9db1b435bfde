"""recipe_kills: every built-in recipe and every recipe in examples/, killed; `python bench/kills.py --recipes` runs it.

Each is cut down to run in a moment, trained undisturbed, and trained again with `kill -9` at random moments. The
weights, the last checkpoint and every row of the log must be the same, to the bit.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from kills import Kind, Start, errors_of, outcome, unequal
from orphans import adopt, orphans

from surefoot import Recipe, load_recipe
from surefoot.recipe.builtin import builtin_recipes
from surefoot.records.log import read_rows

STEPS, EACH = 24, 3
LIVED_ON = "processes lived on after a kill"
EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = {
    "regression": ["samples=64"],
    "cruncher": ["width=16", "layers=3", "samples=128"],
    "sentiment": ["samples=256"],
    "fashion": ["hidden=16"],
    "gan": ["hidden=8"],
    "ppo": ["hidden=8", "turns=4", "epochs=2"],
    "distill": ["hidden=8"],
    "sam": ["hidden=8"],
    "gpt": ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=4", "global_batch_tokens=256"],
    "llama": ["context=32", "layers=2", "micro_batch_size=2"],
    "hf": ["context=16", "micro_batch_size=2"],
    "finetune": ["context=16", "micro_batch_size=2", "rank=2", "init_from=none"],
}
"""Every built-in recipe, cut to run in a moment."""


def recipes(folder: Path) -> dict[str, Recipe]:
    """All of them, by name; what they read is made in a folder."""
    given = {"fashion": [f"folder={_images(folder)}"], "hf": [f"config={_config(folder)}"]}
    given["finetune"] = [f"model={folder / 'model'}"]
    loaded = {name: load_recipe(name, [*SMALL[name], *given.get(name, [])]) for name in builtin_recipes()}
    files = [path for path in sorted(EXAMPLES.glob("*.py")) if "-> Recipe" in path.read_text(encoding="utf-8")]
    loaded |= {path.name: load_recipe(str(path)) for path in files}
    return {name: _cut(each) for name, each in loaded.items()}


def _cut(recipe: Recipe) -> Recipe:
    every = None if recipe.evaluate_every is None else 6
    return replace(recipe, max_steps=STEPS, save_every=5, evaluate_every=every)


def main(each: int, seed: int, names: list[str]) -> tuple[int, list[str]]:
    """How often was killed, and what was wrong then. Without names, all are killed."""
    adopt()
    draw, kills, wrong = random.Random(seed), 0, list[str]()
    with tempfile.TemporaryDirectory() as here:
        found_here = recipes(Path(here))
        for name in names or found_here:
            recipe = found_here[name]
            kind, began = Kind(name, True, recipe), time.perf_counter()
            found = list(killed(kind, Path(here) / f"{name}-run", each, draw))
            kills, wrong = kills + each, wrong + found
            print(f"{name:16} killed {each} times, wrong {len(found)}, {time.perf_counter() - began:.1f} s", flush=True)
    return kills, wrong


def killed(kind: Kind, folder: Path, each: int, draw: random.Random) -> Iterator[str]:
    """In what a run that is killed so many times differs from one that is not."""
    usual = folder.with_name(f"{folder.name}-usual")
    began = time.perf_counter()
    if Start(kind, usual).end() != 0:
        yield f"{kind.name} fails without any kill:\n{errors_of(usual).read_text()[-1500:]}"
        return
    seconds = time.perf_counter() - began
    for at in sorted(draw.random() for _ in range(each)):
        start = Start(kind, folder)
        _wait_for(folder, int(at * STEPS), most=20 * seconds + 60)
        time.sleep(draw.random() * seconds / STEPS)
        start.kill()
        if left := orphans():
            yield f"{kind.name}: {left} {LIVED_ON}"
    if Start(kind, folder).end() != 0:
        yield f"{kind.name} does not resume:\n{errors_of(folder).read_text()[-1500:]}"
        return
    first, second = outcome(usual), outcome(folder)
    yield from (f"{kind.name}: {name} differs: {what}" for name, what in unequal(first.state, second.state))
    for row in read_rows(folder / "log.jsonl"):
        if different := row.differs_from(first.rows[row.step]):
            yield f"{kind.name}: step {row.step} differs: {'; '.join(different)}"
    shutil.rmtree(folder), shutil.rmtree(usual)


def _wait_for(folder: Path, steps: int, *, most: float) -> None:
    """Until the log has so many rows."""
    log, until = folder / "log.jsonl", time.perf_counter() + most
    while (log.read_bytes().count(b"\n") if log.exists() else 0) < steps and time.perf_counter() < until:
        time.sleep(0.002)


def _images(folder: Path) -> Path:
    """Small files in the format of Fashion-MNIST."""
    draw, made = np.random.default_rng(0), folder / "images"
    made.mkdir()
    for part, count in (("train", 600), ("t10k", 100)):
        images, labels = draw.integers(0, 256, (count, 28, 28), np.uint8), draw.integers(0, 10, count, np.uint8)
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            (made / name).write_bytes(header + array.tobytes())
    return made


def _config(folder: Path) -> Path:
    """The config of a small model of transformers."""
    made = folder / "model"
    made.mkdir()
    sizes = {
        "vocab_size": 64,
        "n_positions": 32,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    (made / "config.json").write_text(json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **sizes}))
    return made
