"""Mirrors for tests: an S3 server on loopback, a proxy before it that refuses or stalls, and a recipe to copy."""

import importlib.util
import select
import shutil
import socket
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

import surefoot
from surefoot import Recipe
from surefoot.checkpoint.entries import MARKER, entries_in
from surefoot.checkpoint.remote import Remote

BENCH = Path(__file__).parent.parent / "bench"


def s3_server():
    """The server of the benches."""
    spec = importlib.util.spec_from_file_location("s3_server", BENCH / "s3_server.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.s3_server()


class Noisy(Dataset):
    """Samples with noise from the global generator, each made in no less than a pause."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int):
        time.sleep(self.pause)  # time itself: a sample takes so long
        x = torch.sin(torch.arange(1.0, 9.0) * (index + 1)) + 0.1 * torch.randn(8)
        return x, x.sum().view(1)


def loss(model, batch):
    x, y = batch
    return nn.functional.mse_loss(model(x), y, reduction="sum"), len(y)


def copied(width: int = 16, mirror: str | None = None, pause: float = 0.0) -> Recipe:
    """A run of a moment that saves often."""
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 1)),
        data=partial(Noisy, pause),
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        micro_batch_size=4,
        max_steps=12,
        save_every=2,
        keep_last=2,
        mirror=mirror,
        name="copied",
    )


def entries_of(url: str) -> dict[str, bool]:
    """Every entry of a mirror, newest first, and whether its marker is there."""
    sizes = Remote(url).sizes()
    return {entry.name: f"{entry.name}/{MARKER}" in sizes for entry in entries_in(sizes)}


def steps_of(url: str) -> list[int]:
    """The steps whose entries have their marker, newest first."""
    return [int(name[5:14]) for name, whole in entries_of(url).items() if whole and name.startswith("step-")]


class Proxy:
    """A TCP proxy: passes on, stalls (takes bytes and says nothing) or refuses. `seen` is called with what clients say.

    `stall_at` is a text: a connection whose client says it stalls for good.
    """

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self.target = host, int(port)
        self.mode, self.stall_at, self.stalled = "pass", None, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open = True
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._open = False
        hang_up(self._listener)
        self.cut()

    def cut(self) -> None:
        """Breaks every connection."""
        for each in self._connections:
            hang_up(each)
        self._connections.clear()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.mode == "refuse":
                client.close()
                continue
            server = socket.create_connection(self.target)
            self._connections += [client, server]
            threading.Thread(target=self._pass, args=(client, server), daemon=True).start()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        stalls = False
        try:
            while True:
                for each in select.select([client, server], [], [], 60)[0]:
                    data = each.recv(1 << 16)
                    if not data:
                        raise OSError
                    if each is client and self.stall_at is not None and self.stall_at.encode() in data:
                        stalls = True
                    if stalls or self.mode == "stall":
                        self.stalled.set()
                        continue
                    (server if each is client else client).sendall(data)
        except (OSError, ValueError):
            hang_up(client)
            hang_up(server)


def hang_up(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


def wipe(folder: Path) -> None:
    """The machine is gone, and its disk with it."""
    shutil.rmtree(folder)


def couriers_of(pid: int) -> list[int]:
    """Processes that copy for a trainer."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"surefoot.checkpoint.courier" in words and str(pid).encode() in words:
                found.append(int(folder.name))
    return found


class Stop(Exception):
    pass


def trained(path: str, mirror: str | None, stop: int | None) -> str:
    """What each of some ranks does: trains, to its end or to an exception after a step."""

    def tell(run, row):
        if row.step == stop:
            raise Stop

    with suppress(Stop):
        return surefoot.train(copied(mirror=mirror), path=path, tell=tell).status
    return "stopped"


PYTHON = sys.executable
