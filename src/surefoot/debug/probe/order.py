"""What one run of a probed script is told to do, and what it answers: plain data in files between processes."""

from __future__ import annotations

from dataclasses import dataclass, field

ANSWER = "ran.json"
"""The file with what a run showed, in the folder of the run."""


@dataclass(frozen=True)
class Change:
    """One thing that a copy of the last evaluation changes.

    `kind` is `none`, `targets` (permuted), `part` (of an input, shuffled between samples) or `sample` (one of them).
    """

    kind: str = "none"
    seed: int = 0
    path: str = ""
    dim: int = 0
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class Roles:
    """What the leaves of a batch are to the loss: `input`, `target`, `both` or `none`, by their path."""

    loader: dict[str, str] = field(default_factory=dict)
    call: dict[str, str] = field(default_factory=dict)
    """Those of the arguments of the model's calls."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The shape of each leaf, by its entry and path: `loader:[0]`."""
    loaders: tuple[int, ...] = ()
    """The loaders that training batches came from, by the order in which loaders were first iterated."""

    @property
    def entry(self) -> str:
        """Where targets are changed: in the loader's batch, in a call, or at the operation where they meet outputs."""
        if "target" in self.loader.values():
            return "loader"
        return "call" if "target" in self.call.values() else "operation"

    @property
    def inputs_enter(self) -> str:
        """Where inputs are changed: in the loader's batch if there is one."""
        return "loader" if self.loader else "call"

    def of(self, entry: str) -> dict[str, str]:
        """The roles of an entry's leaves."""
        return {"loader": self.loader, "call": self.call}.get(entry, {})

    def named(self, entry: str, *roles: str) -> list[str]:
        """The paths of the leaves that play one of these roles."""
        return [path for path, role in self.of(entry).items() if role in roles]


@dataclass(frozen=True)
class Order:
    """One run of the script.

    `train` is what its training batches undergo: ``, `fixed`, `shift +1`, `shift -1`, `one batch` or `frozen N`.
    """

    name: str
    script: str
    folder: str
    args: tuple[str, ...] = ()
    updates: int = 10
    evaluates: bool = False
    """Whether it goes on to the first evaluation after its last update."""
    seed: int = 0
    looks: bool = False
    """Whether it finds the roles of leaves."""
    roles: Roles = field(default_factory=Roles)
    train: str = ""
    copies: tuple[Change, ...] = ()
    modules: tuple[str, ...] = ()
    """Modules of installed packages to import before the fork, so that each run need not."""
    measures_terms: bool = False
    """Whether it measures the gradient of each term of the loss."""
    copy_seconds: float = 60.0
    """CPU seconds that the copies of the last evaluation may take together."""


@dataclass(frozen=True)
class Line:
    """A line with numbers that the script printed: its text with `#` in their place."""

    text: str
    numbers: tuple[float, ...]
    where: str = ""


@dataclass(frozen=True)
class Term:
    """One of the numbers that a loss is the sum of, in one update."""

    name: str
    """What the script calls it, or its line."""
    where: str
    update: int
    length: float
    """Of the gradient that it gives to all parameters, its factors included."""
    modules: dict[str, float]
    """The length of the part that each module gets."""
    along: float | None = None
    """The cosine between its gradient and that of the other terms."""


@dataclass(frozen=True)
class Ran:
    """What a run, or the copy of an evaluation, showed."""

    name: str
    updates: int = 0
    losses: tuple[float, ...] = ()
    """The sum of the losses of each update."""
    batches: tuple[str, ...] = ()
    """Hashes of what entered the first updates."""
    lines: tuple[Line, ...] = ()
    """Those printed since the last evaluation began."""
    outputs: tuple[str, ...] = ()
    """Hashes of what the model returned since then, call by call."""
    changed: int = 0
    """How many batches, calls or operations the change really changed."""
    mixed: tuple[str, ...] = ()
    """For one disturbed sample: what happened to the outputs of the others."""
    evaluations: tuple[int, ...] = ()
    """The number of updates before each evaluation."""
    roles: Roles = field(default_factory=Roles)
    places: dict[str, str] = field(default_factory=dict)
    """Lines of the script: where the `batch`, the `call` and the `loss` are."""
    facts: dict[str, float] = field(default_factory=dict)
    """Numbers of the run: seconds, optimizers, workers, how reading a sample twice differs."""
    terms: tuple[Term, ...] = ()
    """Those of the loss, in each update in which they were measured."""
    no_terms: str = ""
    """Why they could not be measured."""
    modules: tuple[str, ...] = ()
    """Modules of installed packages that the script imported; none if it sets environment variables."""
    error: str = ""
    no_copies: str = ""
    """Why the last evaluation could not be copied."""
    cpu_seconds: float = 0.0
