"""checkpoint_stall: how long a save keeps the training from going on, against a mere copy of the state.

    python bench/checkpoint_stall.py [--quick] [--rounds N] [--out FILE]

The state is that of GPT-2 124M in float32 with AdamW: 124,439,808 parameters, 1.49 GB. In every round, in turn:

| clone    | `tensor.clone()` of every tensor: the floor                                          |
| stall    | `Checkpoints.save` until it returns; then it is waited for, which is not counted     |
| dcp      | `torch.distributed.checkpoint.async_save` until it returns, with its default stager  |
| blocking | the same `Checkpoints`, not asynchronous                                             |

Seconds of one round are only compared with each other. Where other programs have the machine too, seconds on the
wall say little; seconds that the calling thread worked, with one thread of torch, are compared as well.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from record import write_record

from surefoot.checkpoint.outline import take_apart
from surefoot.checkpoint.store import Checkpoints


def gpt2(width: int = 768, layers: int = 12, vocabulary: int = 50257, context: int = 1024) -> dict[str, Any]:
    """A state with the shapes of GPT-2: every parameter, its two moments and its step."""
    block = [(width,)] * 2 + [(3 * width, width), (3 * width,), (width, width), (width,)]
    block += [(width,)] * 2 + [(4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    shapes = [(vocabulary, width), (context, width), *block * layers, (width,), (width,)]
    model = {f"p{number}": torch.randn(shape) for number, shape in enumerate(shapes)}
    moments = {
        name: {"step": torch.tensor(1.0), "exp_avg": torch.randn_like(each), "exp_avg_sq": torch.rand_like(each)}
        for name, each in model.items()
    }
    return {"model": model, "optimizer": moments, "lr": 1e-3}


def seconds(work: Callable[[], Any]) -> dict[str, float]:
    """Until it returns: on the wall, and those that this thread worked."""
    began, worked = time.perf_counter(), time.thread_time()
    work()
    return {"wall": time.perf_counter() - began, "cpu": time.thread_time() - worked}


def measure(state: dict[str, Any], rounds: int, *, peers: bool = True) -> list[dict[str, dict[str, float]]]:
    """Seconds of each, round by round. In the first round buffers are made that later ones use again."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        ours = Checkpoints(Path(name) / "ours", keep_last=1)
        blocking = Checkpoints(Path(name) / "blocking", keep_last=1, asynchronous=False)
        for number in range(rounds + 1):
            row = {"clone": seconds(lambda: [each.clone() for each in take_apart(state)[1].values()])}
            row["stall"] = seconds(lambda step=number: ours.save(step, state))
            row["wait"] = seconds(ours.wait)
            if peers:
                row["dcp"] = dcp_stall(state, Path(name) / f"dcp-{number}")
                row["blocking"] = seconds(lambda step=number: blocking.save(step, state))
            found.append(row)
            print(
                "  ".join(f"{key} {value['wall']:.2f} ({value['cpu']:.2f})" for key, value in row.items()), flush=True
            )
        ours.close()
        blocking.close()
    return found


def dcp_stall(state: dict[str, Any], folder: Path) -> dict[str, float]:
    futures: list[Any] = []
    stalled = seconds(lambda: futures.append(dcp.async_save(state, checkpoint_id=folder)))
    futures[0].result()
    shutil.rmtree(folder)
    return stalled


def result(rows: list[dict[str, dict[str, float]]]) -> str:
    """Ratios to the clone of the same round: the median of all rounds but the first, and the first."""
    parts = {f"{name}_over_clone": ratio(rows[1:], name, "wall") for name in rows[0] if name not in ("clone", "wait")}
    parts["stall_cpu_over_clone"] = ratio(rows[1:], "stall", "cpu")
    parts["first_stall_cpu_over_clone"] = ratio(rows[:1], "stall", "cpu")
    return f"RESULT rounds={len(rows) - 1} " + " ".join(f"{name}={value:.2f}" for name, value in parts.items())


def ratio(rows: list[dict[str, dict[str, float]]], name: str, clock: str) -> float:
    return statistics.median(row[name][clock] / row["clone"][clock] for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a state of 0.2 GB, three rounds, without peers")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--out", type=Path, help="write the record to this file")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    torch.set_num_threads(1)
    state = gpt2(layers=2, vocabulary=8192) if arguments.quick else gpt2()
    print(f"{sum(each.numel() for each in state['model'].values()):,} parameters")
    rows = measure(state, arguments.rounds or (3 if arguments.quick else 5), peers=not arguments.quick)
    if arguments.out:
        write_record(arguments.out, {"rows": rows, "result": result(rows)})
    print(result(rows))


if __name__ == "__main__":
    main()
