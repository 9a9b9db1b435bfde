"""Checkpoints: a saved state with one damaged file, as surefoot, DCP, torch.load and safetensors read it.

A state of a small transformer with AdamW is saved by surefoot (two steps, so that there is one to fall back
to) and by three others. Each try damages one file of the newest checkpoint, chosen evenly among all of its
files, in one of four ways: one bit flips, the file is cut short, a part of it becomes zero, the file is gone.
Then the state is loaded, compared bit for bit, and the file is put back.
"""

from __future__ import annotations

import logging
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp

from surefoot.checkpoint.outline import leaves, take_apart
from surefoot.checkpoint.state import state_of
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import CheckpointError

KINDS = ("flip", "cut", "hole", "gone")
Tensors = dict[str, torch.Tensor]
Load = Callable[[Path, Tensors], Tensors]


# ------------------------------------------------------------------------------------------- the state


def trained(steps: int) -> dict[str, Any]:
    """The state of a few steps of a transformer layer with an embedding: 27,000 parameters, AdamW."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(128, 32), torch.nn.TransformerEncoderLayer(32, 2, 64), torch.nn.Linear(32, 128)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    for _ in range(steps):
        tokens = torch.randint(0, 128, (16, 4))
        torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    return state_of(SimpleNamespace(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, number=steps))


def same(one: Any, other: Any) -> bool:
    """Equal in form and in every bit."""
    ones, others = dict(leaves(one)), dict(leaves(other))
    return ones.keys() == others.keys() and all(equal(ones[place], others[place]) for place in ones)


def equal(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return type(one) is type(other) and repr(one) == repr(other)
    if not isinstance(other, torch.Tensor) or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return one.contiguous().numpy().tobytes() == other.contiguous().numpy().tobytes()


# ------------------------------------------------------------------------------------------- the damage


def damaged(data: bytes, kind: str, chance: random.Random) -> bytes | None:
    """What is left of a file; None if nothing is."""
    place = chance.randrange(len(data))
    if kind == "gone":
        return None
    if kind == "cut":
        return data[:place]
    if kind == "flip":
        return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
    size = min(chance.choice([64, 512, 4096]), len(data) - place)
    return data[:place] + bytes(size) + data[place + size :]


@contextmanager
def damage(files: list[Path], chance: random.Random) -> Iterator[tuple[Path, str]]:
    """Damages one of some files, and puts it back."""
    while True:
        path, kind = chance.choice(files), chance.choice(KINDS)
        before = path.read_bytes()
        after = damaged(before, kind, chance)
        if after != before:  # zeros may have been there already
            break
    if after is None:
        path.unlink()
    else:
        path.write_bytes(after)
    try:
        yield path, kind
    finally:
        path.write_bytes(before)


# ------------------------------------------------------------------------------------------- who is asked


class Ours:
    """surefoot: two checkpoints, the newer one is damaged."""

    def __init__(self, folder: Path) -> None:
        self.states = {1: trained(1), 2: trained(2)}
        self.checkpoints = Checkpoints(folder, asynchronous=False)
        for step, state in self.states.items():
            self.checkpoints.save(step, state)
        newest = self.checkpoints.newest()
        assert newest is not None
        assert same(newest.load(), self.states[2])
        self.files = sorted(newest.path.iterdir())

    def outcome(self, path: Path) -> str:
        found = self.checkpoints.newest()
        if found is None or found.step != 1:
            return "harmless" if found is not None and same(found.load(), self.states[2]) else "wrong"
        [(rejected, reason)] = self.checkpoints.rejected
        if rejected != path.parent or not reason.startswith(path.name):
            return f"rejected, but said {reason!r} of {path.name}"
        return "rejected" if same(found.load(), self.states[1]) else "rejected, but the previous one is wrong"


class Peer:
    """Another way to save tensors. What is not a tensor is left out: not every one of them can keep it."""

    def __init__(self, folder: Path, save: Callable[[Tensors, Path], None], load: Load) -> None:
        folder.mkdir()
        self.folder, self.load, self.tensors = folder, load, take_apart(trained(2))[1]
        save(self.tensors, folder)
        assert same(load(folder, self.tensors), self.tensors)
        self.files = sorted(folder.iterdir())

    def outcome(self, path: Path) -> str:
        return "harmless" if same(self.load(self.folder, self.tensors), self.tensors) else "wrong"


def load_dcp(folder: Path, like: Tensors) -> Tensors:
    into = {name: torch.zeros_like(tensor) for name, tensor in like.items()}
    dcp.load(into, checkpoint_id=folder)
    return into


PEERS: dict[str, tuple[Callable[[Tensors, Path], Any], Load]] = {
    "dcp": (lambda tensors, folder: dcp.save(tensors, checkpoint_id=folder), load_dcp),
    "torch.load": (
        lambda tensors, folder: torch.save(tensors, folder / "state.pt"),
        lambda folder, _: torch.load(folder / "state.pt", weights_only=True),
    ),
    "safetensors": (
        lambda tensors, folder: safetensors.torch.save_file(tensors, folder / "state.safetensors"),
        lambda folder, _: safetensors.torch.load_file(folder / "state.safetensors"),
    ),
}


# ------------------------------------------------------------------------------------------- the tries


def tried(asked: Any, tries: int, seed: int) -> dict[str, Counter[str]]:
    """What came of every kind of damage."""
    chance, counts = random.Random(seed), {kind: Counter[str]() for kind in KINDS}
    for _ in range(tries):
        with damage(asked.files, chance) as (path, kind):
            counts[kind][outcome(asked, path)] += 1
    return counts


def outcome(asked: Any, path: Path) -> str:
    try:
        return asked.outcome(path)
    except CheckpointError as error:
        return f"refused without a previous one: {error}"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # DCP's own exception is not an Exception
        return "rejected" if isinstance(asked, Peer) else f"crashed: {error!r}"


def damage_checkpoints(folder: Path, tries: int, seed: int) -> dict[str, dict[str, Counter[str]]]:
    """What each of the four makes of its damaged checkpoint, by the kind of damage."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    logging.disable(logging.CRITICAL)  # DCP logs a traceback for every file that it cannot read
    folder.mkdir()
    asked: dict[str, Any] = {"surefoot": Ours(folder / "surefoot")}
    asked |= {who: Peer(folder / who, *how) for who, how in PEERS.items()}
    return {who: tried(each, tries, seed) for who, each in asked.items()}


def peer_table(found: dict[str, dict[str, Counter[str]]]) -> Iterator[str]:
    """rejected: refused, by surefoot with the name of the file. wrong: loaded, and not what was saved.
    harmless: loaded as it was saved, because nobody reads what was hit. For surefoot only `rejected` is right."""
    if not found:
        return
    names = ("rejected", "wrong", "harmless")
    yield f"{'':12} {'damage':7} " + " ".join(f"{name:>9}" for name in names) + "  else"
    for who, counts in found.items():
        for kind, count in counts.items():
            other = {name: number for name, number in count.items() if name not in names}
            yield f"{who:12} {kind:7} " + " ".join(f"{count[name]:9}" for name in names) + f"  {other or '-'}"
