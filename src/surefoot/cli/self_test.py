"""The self-test of `surefoot doctor`: plan, check, train and resume a tiny recipe in a temporary folder."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.records.doctor import SelfTest
from surefoot.records.units import bytes_text

if TYPE_CHECKING:
    from surefoot.recipe.recipe import Recipe

STEPS, STOPPED_AFTER = 5, 3
_TORCH = "surefoot is tested with torch 2.13; install it: pip install torch==2.13.0"
_REPORT = "if that does not help, please report it with the output of `surefoot doctor --json`"


class Failed(Exception):
    """A part of the self-test gave a wrong result."""


def self_test() -> tuple[SelfTest, ...]:
    """Runs all parts, each on its own: one that fails does not hide the others. About five seconds on two cores."""
    parts: tuple[tuple[str, Callable[[], str], str], ...] = (
        ("plan", _plan, f"{_TORCH}; {_REPORT}"),
        ("check", _check, f"{_TORCH}; {_REPORT}"),
        ("train", _train, f"is {tempfile.gettempdir()} full or read-only? TMPDIR names another folder; {_REPORT}"),
        ("exactness", _exactness, f"{_TORCH}; {_REPORT}"),
    )
    return tuple(_tried(*part) for part in parts)


def _tried(name: str, part: Callable[[], str], remedy: str) -> SelfTest:
    began = time.perf_counter()
    try:
        said, passed = part(), True
    except Exception as error:  # whatever is broken here, the other parts are still worth trying
        said, passed = (str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"), False
    return SelfTest(name, passed, said, time.perf_counter() - began, "" if passed else remedy)


def _recipe() -> Recipe:
    """Batch norm and dropout: a resume that forgets a buffer or a random number shows in the weights."""
    from surefoot.recipe.load import load_recipe

    return load_recipe("sentiment", ["samples=256", f"max_steps={STEPS}", "save_every=2"])


def _plan() -> str:
    from surefoot.ways.plan import plan

    planned = plan(_recipe())
    if planned.steady.peak.peak_bytes <= 0:
        raise Failed("the plan of a step has no memory")
    return f"a step is planned: {bytes_text(planned.steady.peak.peak_bytes)} at the peak"


def _check() -> str:
    from surefoot.ways.check import check

    found = check(_recipe())
    if found.findings:
        raise Failed(f"found {found.findings[0].check} in a recipe without a bug")
    return f"{len(found.checks)} checks found nothing in a recipe without a bug"


def _train() -> str:
    """Trains once in one go and once with a stop in the middle: both must end with the same bits."""
    from surefoot.ways.train import train

    class Stop(Exception):
        pass

    def stop(_: Any, row: Any) -> None:
        if row.step == STOPPED_AFTER:
            raise Stop

    with tempfile.TemporaryDirectory(prefix="surefoot-doctor-") as folder:
        whole = train(_recipe(), path=f"{folder}/whole")
        with suppress(Stop):
            train(_recipe(), path=f"{folder}/stopped", tell=stop)
        taken: list[int] = []
        resumed = train(_recipe(), path=f"{folder}/stopped", tell=lambda _, row: taken.append(row.step))
        if not taken or taken[0] == 1:
            raise Failed("the stopped run started again from the first step")
        weights = [Path(run.path, "model.safetensors").read_bytes() for run in (whole, resumed)]
        if weights[0] != weights[1] or whole.last_loss != resumed.last_loss:
            raise Failed(
                f"a run resumed after step {STOPPED_AFTER} ended with other weights than one that was not stopped"
            )
    return f"{STEPS} steps, the same bits after a stop and a resume"


def _exactness() -> str:
    """Compares the plan of a step with the same meters around real steps."""
    from surefoot.data.batches import batches_of
    from surefoot.meters.books import Books
    from surefoot.randomness import kept
    from surefoot.step import Step
    from surefoot.ways.plan import plan
    from surefoot.world.world import World

    recipe, world = _recipe(), World()
    if world.device.type != "cpu":
        return f"not compared on {world.device.type}; `surefoot profile RECIPE` compares plan and step there"
    planned = plan(recipe).steady
    batches = batches_of(recipe)
    with kept(), world, Books() as books:
        step = Step(recipe, world)
        books.close()
        books.phases.find(step.model)
        for _ in range(2):
            step(books.seen(world.take(batches) for _ in range(recipe.micro_batches())))
    measured = books.steps[1]
    if measured != planned:
        amounts = (planned.peak.peak_bytes, measured.peak.peak_bytes)
        raise Failed("the plan says {:,} bytes at the peak, and the step took {:,}".format(*amounts))
    return f"plan and step agree to the byte: {measured.peak.peak_bytes:,} bytes at the peak"
