"""The report: every figure on a page about one or more runs."""

from dataclasses import dataclass, field

from surefoot.records.event import Event
from surefoot.records.finding import Finding, Findings
from surefoot.records.layers import LayersRow
from surefoot.records.ledger import Ledger
from surefoot.records.out_of_memory import OutOfMemory
from surefoot.records.splits import SplitProfile
from surefoot.records.token_ledger import TokenLedger
from surefoot.records.usage import Peak, Timeline


@dataclass(frozen=True)
class ModuleShare:
    """One module's share of a step, without the modules inside it."""

    module: str
    memory_bytes: int
    flops: float
    moved_bytes: float
    seconds: float
    bound: str = ""
    """`compute` or `memory`, whichever is the limit; empty if unknown."""


@dataclass(frozen=True)
class Ceiling:
    """The two ceilings of a roofline, and their source."""

    flops_per_second: float
    bytes_per_second: float
    source: str


HELD_OUT = "held-out "
"""The name of a curve on held-out data begins with it."""


@dataclass(frozen=True)
class Curve:
    """One figure over the steps of a run, thinned if there are very many steps."""

    name: str
    unit: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Sheet:
    """One run, profile or watched script."""

    name: str
    """The name of its folder."""
    path: str
    headline: str
    """Whether it went as planned, in one sentence."""
    went_as_planned: bool | None
    """None if there is no plan."""
    first: Finding | None
    """What to change first."""
    facts: dict[str, str]
    curves: tuple[Curve, ...] = ()
    timeline: Timeline | None = None
    timeline_of: str = ""
    """Whether the timeline was measured or planned."""
    peak: Peak | None = None
    phase_seconds: dict[str, float] = field(default_factory=dict)
    modules: tuple[ModuleShare, ...] = ()
    operators: dict[str, float] = field(default_factory=dict)
    ceiling: Ceiling | None = None
    ledger: Ledger = Ledger()
    findings: Findings | None = None
    tokens: TokenLedger | None = None
    cost: dict[str, str] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    layers: tuple[LayersRow, ...] = ()
    """What each layer did, for at most 200 of the measured steps."""
    out_of_memory: OutOfMemory | None = None
    """What held the memory, if it ended out of memory."""
    data: SplitProfile | None = None
    """What training and validation were given, side by side."""
    recipe: str = ""
    """The name of the recipe or script."""
    knobs: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    settings: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What was chosen and assumed."""
    source: str = ""
    """The recipe's file."""


@dataclass(frozen=True)
class Report:
    """One or more runs in one page; `answer` is its first sentence."""

    answer: str
    sheets: tuple[Sheet, ...]
    made_by: str
