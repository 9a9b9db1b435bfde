"""The self-test of `surefoot doctor`: plan, check, train and resume a tiny recipe in a temporary folder."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.errors import DiskError, SurefootError
from surefoot.records.doctor import SelfTest
from surefoot.torch_inside.version import is_tried, not_tried
from surefoot.units import bytes_text

if TYPE_CHECKING:
    from surefoot.recipe.recipe import Recipe

STEPS, STOPPED_AFTER = 5, 3
_REPORT = "please report it with the output of `surefoot doctor --json`"


class Failed(Exception):
    """A part of the self-test gave a wrong result."""


class NotRun(Exception):
    """A part of the self-test cannot run on this machine."""


def self_test() -> tuple[SelfTest, ...]:
    """Runs all parts, each on its own: one that fails does not hide the others. About five seconds on two cores."""
    parts = {"plan": _plan, "check": _check, "train": _train, "exactness": _exactness}
    return tuple(_tried(name, part) for name, part in parts.items())


def _tried(name: str, part: Callable[[], str]) -> SelfTest:
    began = time.perf_counter()
    try:
        return SelfTest(name, True, part(), time.perf_counter() - began)
    except NotRun as reason:
        return SelfTest(name, True, str(reason), time.perf_counter() - began, ran=False)
    except Exception as error:  # whatever is broken here, the other parts are still worth trying
        message = str(error) if isinstance(error, Failed | SurefootError) else f"{type(error).__name__}: {error}"
        return SelfTest(name, False, message, time.perf_counter() - began, _remedy(error))


def _remedy(error: Exception) -> str:
    """What to do about an error: only what its kind gives a reason for."""
    if isinstance(error, OSError | DiskError):
        full = f"is {tempfile.gettempdir()} full or read-only? TMPDIR names another folder"
        return f"{full}; if that does not help, {_REPORT}"
    installed = version("torch")
    if not is_tried(installed):
        return f"{not_tried(installed)}; if it fails with one of these too, {_REPORT}"
    return _REPORT


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
        raise NotRun(f"a plan is compared on a CPU; on {world.device.type}, `surefoot profile RECIPE` compares them")
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
