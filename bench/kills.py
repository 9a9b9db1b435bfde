"""kills: `kill -9` at random moments, again and again, also inside a save; the run must come out as if undisturbed.

    python bench/kills.py [--ranks [--minutes N] [--layouts A,B] | --recipes] [--quick | --kills N] [--seed N]
        [--out FILE]

A run of a small recipe is started, killed, and started again, until it has taken its last step. Half of the kills come
at a random time after the start; half while a checkpoint is being written. Then another run begins, saving in
another way. Held against an undisturbed run of the same recipe, this is wrong:

- a start that ends in any way but by the kill or with the last step taken;
- weights or optimizer state that differ in a bit at the end;
- a sample that was not used exactly once in the epoch, by the log;
- a row of the log that differs from the undisturbed run's, or two rows for a step that differ from each other.

A process that a killed start leaves behind, a data worker for one, is an orphan. They are counted after every kill
(`orphans.py`).

Every start is a child of one process that has loaded torch and surefoot and has computed nothing: what takes a second
elsewhere takes a few milliseconds here.

With `--recipes`, every built-in recipe and example is killed three times: see `recipe_kills.py`.
With `--ranks`, single ranks of torchrun's are killed instead, 100 by default: see `rank_kills.py`.
With `--mirror`, the run's directory is removed after every kill, 50 by default: see `mirror_kills.py`.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: a forked child must not meet threads that are not there

import torch
import torch._dynamo  # the first optimizer would load it, in every child anew
from orphans import adopt, orphans
from record import write_record
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import Dataset

from surefoot import Recipe
from surefoot.checkpoint.store import DRAFT, Checkpoints
from surefoot.records.log import LogRow, read_rows, standing
from surefoot.records.run import read_run
from surefoot.techniques.schedule import warmup_cosine
from surefoot.training import loop
from surefoot.ways.train import train

STEPS, BATCH = 60, 8
SAMPLES = STEPS * BATCH  # one epoch: every sample exactly once


# ------------------------------------------------------------------------------------------- the runs


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples that are disturbed each time they are read, by the global generator."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.sin(torch.arange(1.0, 17.0) * (index + 1)) + 0.1 * torch.randn(16)
        return x, x.sum().view(1)


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, int]:
    x, y = batch
    return nn.functional.mse_loss(model(x), y, reduction="sum"), len(y)


def model(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 1),
    )  # fmt: skip


def recipe(width: int, precision: str, fused: bool, save_every: int, workers: int = 0) -> Recipe:
    return Recipe(
        model=partial(model, width),
        data=Noisy,
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, fused=fused),
        schedule=warmup_cosine(warmup_steps=10),
        micro_batch_size=BATCH // 2,
        global_batch_tokens=BATCH,
        max_grad_norm=1.0,
        max_steps=STEPS,
        precision=precision,
        save_every=save_every,
        workers=workers,
        keep_last=2,
        name="killed",
    )


@dataclass(frozen=True)
class Kind:
    """A way of saving."""

    name: str
    asynchronous: bool
    recipe: Recipe


KINDS = (
    Kind("sync", False, recipe(64, "32-true", fused=False, save_every=2)),
    Kind("workers", True, recipe(64, "32-true", fused=False, save_every=2, workers=2)),
    Kind("async", True, recipe(64, "bf16-mixed", fused=True, save_every=2)),
    Kind("async, large", True, recipe(512, "32-true", fused=True, save_every=1)),
    Kind("sync, 16-mixed", False, recipe(64, "16-mixed", fused=False, save_every=3)),
)


# ------------------------------------------------------------------------------------------- one start

BEGUN, ENDED = b"(", b")"


class Start:
    """A process that trains, and says when a save begins and when its checkpoint is there."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.said, saying = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.said)
            train_and_exit(kind, folder, saying)
        os.close(saying)

    def hear(self, timeout: float) -> bytes:
        """What it says next; nothing if it says nothing in time, or has ended."""
        ready, _, _ = select.select([self.said], [], [], timeout)
        return os.read(self.said, 1) if ready else b""

    def kill(self) -> int | None:
        """Ends it. None if the kill is what ended it, else its exit code."""
        os.kill(self.pid, signal.SIGKILL)
        return self.end()

    def end(self) -> int | None:
        _, status = os.waitpid(self.pid, 0)
        os.close(self.said)
        code = os.waitstatus_to_exitcode(status)
        return None if code == -signal.SIGKILL else code


def train_and_exit(kind: Kind, folder: Path, saying: int) -> None:
    """What a child does. It ends without unwinding into what its parent had begun."""
    try:
        os.dup2(os.open(errors_of(folder), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        torch.set_num_threads(1)
        say_when_saving(saying)
        loop.Checkpoints = partial(Checkpoints, asynchronous=kind.asynchronous)  # type: ignore[attr-defined]
        train(kind.recipe, path=str(folder))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def say_when_saving(saying: int) -> None:
    save, publish = Checkpoints.save, Checkpoints._publish

    def saved(self: Checkpoints, *args: Any) -> None:
        os.write(saying, BEGUN)
        save(self, *args)

    def published(self: Checkpoints, *args: Any) -> None:
        publish(self, *args)
        os.write(saying, ENDED)

    Checkpoints.save, Checkpoints._publish = saved, published  # type: ignore[method-assign]


def errors_of(folder: Path) -> Path:
    return folder.with_suffix(".errors")


# ------------------------------------------------------------------------------------------- an undisturbed run


@dataclass(frozen=True)
class Undisturbed:
    """What a run comes to when nobody kills it, how long it takes, and how long its saves take."""

    state: dict[str, Any]
    rows: dict[int, LogRow]
    seconds: float
    save_seconds: float


def undisturbed(kind: Kind, folder: Path) -> Undisturbed:
    began, saves = time.perf_counter(), list[float]()
    start = Start(kind, folder)
    while said := start.hear(60):
        saves.append(time.perf_counter() * (1 if said == ENDED else -1))
    if start.end() != 0:
        raise RuntimeError(f"{kind.name} fails without any kill:\n{errors_of(folder).read_text()}")
    seconds = time.perf_counter() - began
    return outcome(folder, seconds, 2 * sum(saves) / len(saves))


def outcome(folder: Path, seconds: float = 0.0, save_seconds: float = 0.0) -> Undisturbed:
    """What a finished run has come to."""
    rows = {row.step: row for row in read_rows(folder / "log.jsonl")}
    return Undisturbed(last_state(folder), rows, seconds, save_seconds)


def last_state(folder: Path) -> dict[str, Any]:
    """All that the last checkpoint holds, and the weights beside it."""
    newest = Checkpoints(folder / "checkpoints").newest()
    assert newest is not None
    return {"checkpoint": newest.load(), "weights": load_file(folder / "model.safetensors")}


# ------------------------------------------------------------------------------------------- a run that is killed


@dataclass
class Toll:
    """What was done to the runs, and what came of it."""

    kills: int = 0
    while_writing: int = 0
    runs: int = 0
    replayed: int = 0
    orphans: int = 0
    wrong: list[str] = field(default_factory=list)


def kill_until_done(kind: Kind, folder: Path, usual: Undisturbed, draw: random.Random, most: int, toll: Toll) -> None:
    """Starts and kills a run until it has taken its last step; after `most` kills it is left alone."""
    toll.runs += 1
    while True:
        before, start = drafts(folder), Start(kind, folder)
        if toll.kills < most:
            wait(start, usual, draw)
        code = start.kill() if toll.kills < most else start.end()
        if code is not None:
            break
        toll.kills += 1
        toll.orphans += orphans()
        toll.while_writing += bool(drafts(folder) - before)
    if code == 0:
        toll.wrong += [f"{kind.name}: {what}" for what in differences(folder, usual, toll)]
    else:
        toll.wrong.append(f"{kind.name}: a start failed:\n{errors_of(folder).read_text()[-1500:]}")


def wait(start: Start, usual: Undisturbed, draw: random.Random) -> None:
    """Until the moment of the kill: at any time, or while one of the next checkpoints is written."""
    if draw.random() < 0.5:
        time.sleep(draw.random() * usual.seconds / 4)
        return
    for _ in range(2 * draw.randrange(4)):
        start.hear(usual.seconds)
    if start.hear(usual.seconds) == BEGUN:
        time.sleep(draw.random() * usual.save_seconds)


def drafts(folder: Path) -> set[str]:
    """Checkpoints that are not whole, or no longer."""
    return {path.name for path in (folder / "checkpoints").glob(f"{DRAFT}*")}


# ------------------------------------------------------------------------------------------- what is wrong


def differences(
    folder: Path, usual: Undisturbed, toll: Toll, *, steps: int = STEPS, samples: int = SAMPLES
) -> Iterator[str]:
    """In what a run differs from the undisturbed one."""
    for name, tensor in unequal(usual.state, last_state(folder)):
        yield f"{name} differs: {tensor}"
    rows = list(read_rows(folder / "log.jsonl"))
    toll.replayed += len(rows) - steps
    for row in rows:
        if different := row.differs_from(usual.rows[row.step]):
            yield f"step {row.step} differs: {'; '.join(different)}"
    used = Counter(sample for row in standing(rows) for sample in row.samples or ())
    if set(used.values()) != {1} or len(used) != samples:
        yield f"{sum(used.values())} samples were used, {len(used)} of them different, of {samples}"
    if read_run(folder).status != "finished":
        yield f"the run says it is {read_run(folder).status}"


def unequal(first: Any, second: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of two trees that differ in a bit, or in kind."""
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        for key in first:
            yield from unequal(first[key], second[key], f"{name}/{key}")
    elif isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        for number, pair in enumerate(zip(first, second, strict=True)):
            yield from unequal(*pair, f"{name}/{number}")
    elif isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        if (first.dtype, first.shape) != (second.dtype, second.shape) or not torch.equal(bits(first), bits(second)):
            yield name, f"{first.dtype}{tuple(first.shape)}"
    elif repr(first) != repr(second):
        yield name, f"{first!r}, then {second!r}"[:200]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().flatten().view(torch.uint8)


# ------------------------------------------------------------------------------------------- the command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="30 kills; with --ranks 5")
    parser.add_argument("--kills", type=int, help="how many (default 1000; with --ranks 100; with --recipes, of each)")
    parser.add_argument("--ranks", action="store_true", help="kill single ranks of torchrun's")
    parser.add_argument("--minutes", type=float, default=math.inf, help="with --ranks, begin no run after so many")
    parser.add_argument("--layouts", help="with --ranks, only these, such as 'cp 2,cp 4'")
    parser.add_argument("--seed", type=int, default=0, help="of the moments; the clock has its say too")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    parser.add_argument(
        "--recipes", nargs="*", metavar="NAME", help="kill these, or every built-in recipe and example, 3 times each"
    )
    parser.add_argument("--mirror", action="store_true", help="wipe the run's directory after every kill")
    arguments = parser.parse_args()
    if arguments.ranks:
        kill_ranks(arguments)
        return
    if arguments.recipes is not None:
        kill_recipes(arguments)
        return
    if arguments.mirror:
        kill_and_wipe(arguments)
        return
    most = 30 if arguments.quick else arguments.kills or 1000
    adopt()
    draw, toll, began = random.Random(arguments.seed), Toll(), time.time()
    with tempfile.TemporaryDirectory() as here:
        usual: dict[str, Undisturbed] = {}
        while toll.kills < most and not toll.wrong and not toll.orphans:
            kind = KINDS[toll.runs % len(KINDS)]
            kills, folder = toll.kills, Path(here) / f"run-{toll.runs}"
            if kind.name not in usual:
                usual[kind.name] = undisturbed(kind, folder.with_name(f"usual-{toll.runs}"))
            kill_until_done(kind, folder, usual[kind.name], draw, most, toll)
            print(
                f"{kind.name:16} killed {toll.kills - kills:4} times, {toll.kills:5} in all, wrong {len(toll.wrong)}, "
                f"orphans {toll.orphans}",
                flush=True,
            )
            shutil.rmtree(folder)
    seconds = time.time() - began
    print(
        f"{toll.runs} runs, {toll.kills} kills, {toll.while_writing} of them while a checkpoint was written, "
        f"{toll.replayed} steps taken again, {seconds:.0f} s"
    )
    for what in toll.wrong:
        print(f"WRONG {what}")
    if arguments.out:
        write_record(
            arguments.out, {**asdict(toll), "seconds": seconds, "steps": STEPS, "kinds": [k.name for k in KINDS]}
        )
    print(f"RESULT kills={toll.kills} wrong={len(toll.wrong)} orphans={toll.orphans}")


def kill_recipes(arguments: argparse.Namespace) -> None:
    import recipe_kills

    began = time.time()
    each = 1 if arguments.quick else arguments.kills or recipe_kills.EACH
    killed, wrong = recipe_kills.main(each, arguments.seed, arguments.recipes)
    for what in wrong:
        print(f"WRONG {what}")
    if arguments.out:
        write_record(arguments.out, {"kills": killed, "wrong": wrong, "seconds": time.time() - began})
    orphans = sum(recipe_kills.LIVED_ON in what for what in wrong)
    print(f"RESULT kills={killed} wrong={len(wrong) - orphans} orphans={orphans}")


def kill_and_wipe(arguments: argparse.Namespace) -> None:
    import mirror_kills

    began = time.time()
    toll = mirror_kills.main(5 if arguments.quick else arguments.kills or 50, arguments.seed)
    seconds = time.time() - began
    print(
        f"{toll.runs} runs, {toll.kills} kills, each with its directory wiped, {toll.while_writing} of them while a "
        f"copy was under way, {seconds:.0f} s"
    )
    for what in toll.wrong:
        print(f"WRONG {what}")
    if arguments.out:
        write_record(arguments.out, {**asdict(toll), "seconds": seconds})
    print(f"RESULT kills={toll.kills} wrong={len(toll.wrong)}")


def kill_ranks(arguments: argparse.Namespace) -> None:
    import rank_kills

    began, most = time.time(), 5 if arguments.quick else arguments.kills or 100
    layouts = arguments.layouts.split(",") if arguments.layouts else list(rank_kills.LAYOUTS)
    killed, named, wrong = rank_kills.main(most, arguments.minutes, arguments.seed, layouts)
    for what in wrong:
        print(f"WRONG {what}")
    if arguments.out:
        seconds = time.time() - began
        record = {"kills": killed, "named": named, "wrong": wrong, "seconds": seconds, "layouts": layouts}
        write_record(arguments.out, record)
    print(f"RESULT kills={killed} wrong={len(wrong)} named={named}")


if __name__ == "__main__":
    main()
