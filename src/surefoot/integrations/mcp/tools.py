"""The tools of the server. Each runs one command of surefoot within the bounds and answers with what matters of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.errors import RecipeError
from surefoot.integrations.mcp import answers
from surefoot.integrations.mcp.answers import CompareAnswer, ExplainAnswer, LookAnswer, PlanAnswer, WatchAnswer
from surefoot.integrations.mcp.bounds import Bounds
from surefoot.integrations.mcp.commands import Commands
from surefoot.recipe.kind import kind_of
from surefoot.records.codec import from_plain
from surefoot.records.compared import Compared, Scripts
from surefoot.records.finding import Findings
from surefoot.records.looked import Looked
from surefoot.records.out_of_memory import OutOfMemory
from surefoot.records.plan import Plan
from surefoot.records.snapshot import MemorySnapshot
from surefoot.records.watched import Watched

WATCHED, COMPARED = 20, 3
"""The updates of a script that are watched and compared, unless the caller asks for others."""


@dataclass(frozen=True)
class Tools:
    """Every path is resolved and lies below the folder; every word of the caller is an argument of its own."""

    bounds: Bounds
    commands: Commands

    async def plan(
        self,
        target: str,
        arguments: Sequence[str] = (),
        on: str | None = None,
        ranks: int = 1,
        steps: int | None = None,
    ) -> PlanAnswer:
        """Does a training fit a GPU, how long does it take, what does it cost? No GPU is needed.

        target: a script (train.py), a recipe (file.py or file.py:function) or a built-in recipe such as llama.
        arguments: of the script, or knobs of the recipe such as layers=12. on: the GPUs, such as h100-sxm or
        8xh100-sxm. ranks: processes that torchrun starts for a script. steps: the updates of a script's whole run, if
        it does not say them. A script runs for 3 updates on a GPU that is not there.
        """
        asked = ["plan", "--json", *([] if on is None else [f"--on={self.bounds.device(on)}"])]
        path, runs = self._target(target)
        if runs:
            launcher = ["torchrun", f"--nproc-per-node={ranks}"] if ranks > 1 else []
            length = [] if steps is None else [f"--steps={steps}"]
            words = [*asked, *length, "--", *launcher, path, *arguments]
        else:
            words = [*asked, path, *self.bounds.knobs(arguments)]
        return answers.plan_answer(from_plain(Plan, await self.commands.record(words)))

    async def watch(self, target: str, arguments: Sequence[str] = (), steps: int = WATCHED) -> WatchAnswer:
        """Find silent bugs of a training script: ones that raise no exception. Runs it and stops after some updates.

        target: a script or notebook, or a recipe (file.py:function or a built-in name), of which a few tiny steps run.
        arguments: of the script, or knobs of the recipe such as layers=12. Each finding names the line, the reason and
        the remedy.
        """
        steps = self.bounds.within_steps(steps)
        path, runs = self._target(target)
        if not runs:
            found = await self.commands.record(["check", path, *self.bounds.knobs(arguments), "--json"])
            return answers.check_answer(from_plain(Findings, found))
        found = await self.commands.record(["watch", path, f"--steps={steps}", "--json", "--", *arguments])
        return answers.watch_answer(from_plain(Watched, found))

    async def look(self, target: str, arguments: Sequence[str] = (), tensor: str | None = None) -> LookAnswer:
        """Look inside one training step: every module's output, parameters, gradient and update. Runs one update.

        target and arguments: as for watch. tensor: tell more of one, named like a parameter or `layers.0(output)`.
        """
        path, runs = self._target(target)
        words = ["--json", "--", *arguments] if runs else [*self.bounds.knobs(arguments), "--json"]
        return answers.look_answer(from_plain(Looked, await self.commands.record(["look", path, *words])), tensor)

    async def explain(self, target: str) -> ExplainAnswer:
        """Explain an out-of-memory error: what held the memory, which lines made it, what would fit. Executes nothing.

        target: the directory of a run of surefoot, or a CUDA memory snapshot that torch dumped.
        """
        path = self.bounds.path(target)
        found = await self.commands.record(["explain", path, "--json"])
        kind = OutOfMemory if (self.bounds.folder / path).is_dir() else MemorySnapshot
        return answers.explain_answer(from_plain(kind, found))

    async def compare(self, first: str, second: str, recipe: str | None = None) -> CompareAnswer:
        """Find where two runs, or two scripts, that should agree begin to differ, and in what.

        Two directories of runs are read, and nothing is executed, unless a recipe is named: then the first step that
        differs is replayed with it. Of two scripts, for example before and after a change, 3 updates run.
        """
        if (path := self._script(first)) and (other := self._script(second)):
            updates = self.bounds.within_steps(min(COMPARED, self.bounds.steps))
            words = ["watch", other, f"--against={path}", f"--steps={updates}", "--json"]
            return answers.compare_answer(from_plain(Scripts, await self.commands.record(words)))
        replay = ["--no-replay"] if recipe is None else [self.bounds.target(recipe)]
        words = ["compare", self.bounds.path(first), self.bounds.path(second), *replay, "--json"]
        return answers.compare_answer(from_plain(Compared, await self.commands.record(words)))

    def _target(self, named: str) -> tuple[str, bool]:
        """What to run, and whether it is a script or notebook; else it is a recipe."""
        path = self.bounds.target(named)
        kind = self._kind(path)
        if kind == "neither":
            raise RecipeError(f"{named} neither trains when it runs nor defines a recipe")
        return path, kind != "recipe"

    def _script(self, named: str) -> str | None:
        """The path of a script or notebook; None if it is something else."""
        path = self.bounds.path(named)
        return path if self._kind(path) in ("script", "notebook") else None

    def _kind(self, path: str) -> str:
        return kind_of(str(self.bounds.folder / path) if path.startswith("./") else path)
