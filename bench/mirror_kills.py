"""mirror_kills: `kill -9`, then the disk is wiped; `python bench/kills.py --mirror` runs it.

A run of the small recipe of `kills.py` copies its checkpoints to an S3 server on loopback (moto). It is killed at a
random moment, half of the time while a copy is under way, and its directory is removed. Started again with the same
mirror, in an empty directory, it must end in the bits, samples and rows of an undisturbed run. Beside what `kills.py`
counts as wrong, this is wrong: a process of a killed trainer that is still there a second later.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import kills
from s3_server import BUCKET, s3_server

from surefoot.checkpoint.mirror import Mirror

RUNS = 60
"""At most so many runs: kills that come too late are not repeated for ever."""


def say_when_copying(saying: int) -> None:
    take, copied = Mirror._copy_next, Mirror._has_copied

    def begins(self: Mirror) -> None:
        before = self._copying
        take(self)
        if self._copying is not None and before is None:
            os.write(saying, kills.BEGUN)

    def ends(self: Mirror, done: object) -> None:
        os.write(saying, kills.ENDED)
        copied(self, done)  # type: ignore[arg-type]

    Mirror._copy_next, Mirror._has_copied = begins, ends  # type: ignore[method-assign, assignment]


def wait(start: kills.Start, usual: kills.Undisturbed, draw: random.Random) -> bool:
    """Until the moment of the kill: soon after a copy has ended, or while one of the next is under way."""
    heard = start.hear(60)
    for _ in range(2 * draw.randrange(3)):
        heard = start.hear(10) or heard
    if draw.random() < 0.5:
        time.sleep(draw.random() * usual.seconds / 4)
        return False
    while heard == kills.ENDED:
        heard = start.hear(10)
    time.sleep(draw.random() * 0.05)
    return heard == kills.BEGUN


def couriers_of(pid: int) -> list[str]:
    """The processes that copy for a trainer, dead or not."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"surefoot.checkpoint.courier" in words and str(pid).encode() in words:
                found.append(folder.name)
    return found


def left_behind(pid: int) -> list[str]:
    until = time.monotonic() + 1
    while couriers_of(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return couriers_of(pid)


def kill_and_wipe(
    kind: kills.Kind, folder: Path, usual: kills.Undisturbed, draw: random.Random, most: int, toll: kills.Toll
) -> None:
    """Starts, kills and wipes a run until it has taken its last step; after `most` kills it is left alone."""
    toll.runs += 1
    while True:
        start = kills.Start(kind, folder)
        copying = wait(start, usual, draw) if toll.kills < most else False
        code = start.kill() if toll.kills < most else start.end()
        if code is not None:
            break
        toll.kills += 1
        toll.while_writing += copying
        if orphans := left_behind(start.pid):
            toll.wrong.append(f"{kind.name}: processes {', '.join(orphans)} outlived their trainer")
        shutil.rmtree(folder, ignore_errors=True)
    if code == 0:
        toll.wrong += [f"{kind.name}: {what}" for what in kills.differences(folder, usual, toll)]
    else:
        said = kills.errors_of(folder).read_text()[-1500:]
        toll.wrong.append(f"{kind.name}: a start failed:\n{said}")


def main(most: int, seed: int) -> kills.Toll:
    """All kills and all that was wrong."""
    draw, toll = random.Random(seed), kills.Toll()
    saving = kills.say_when_saving
    with tempfile.TemporaryDirectory() as here, s3_server() as settings:
        os.environ |= settings
        usual: dict[str, kills.Undisturbed] = {}
        for number in range(RUNS):
            if toll.kills >= most or toll.wrong:
                break
            plain = kills.KINDS[number % len(kills.KINDS)]
            kills.say_when_saving = saving
            if plain.name not in usual:
                usual[plain.name] = kills.undisturbed(plain, Path(here) / f"usual-{number}")
            mirrored = replace(plain, recipe=replace(plain.recipe, mirror=f"s3://{BUCKET}/run-{number}"))
            before, folder = toll.kills, Path(here) / f"run-{number}"
            kills.say_when_saving = say_when_copying
            kill_and_wipe(mirrored, folder, usual[plain.name], draw, most, toll)
            told = f"killed and wiped {toll.kills - before:3} times, {toll.kills:4} in all, wrong {len(toll.wrong)}"
            print(f"{plain.name:16} {told}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    return toll
