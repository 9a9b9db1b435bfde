"""The plan: what a recipe's step will take, computed without taking it."""

from dataclasses import dataclass, field

from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Usage


@dataclass(frozen=True)
class Plan:
    """Two symbolic steps of a recipe: the first, in which the optimizer makes its state, and a steady one.

    Around them: building the model and optimizer (`init`), an evaluation of one step's batches, and building them
    anew with a saved state beside them (`resume`). `state_bytes` is what a checkpoint holds, and what staging one
    copies into host memory: parameters, buffers and optimizer state. `flops_per_token` holds the count of this plan
    without recomputation, and what others' formulas give for this model. `reserved_bytes` is what torch's caching
    allocator would reserve on a GPU for the same tensors, with classic and with expandable segments: a model of the
    allocator, without the GPU's own workspaces. `blocks` says which blocks were run a few times for all, or why all
    were run; it is empty where no block is repeated often.
    """

    recipe: str
    about: str
    knobs: dict[str, str | int | float | bool | None]
    parameters: int
    tokens_per_step: int
    micro_batches: int
    steps: int | None
    first: Usage = Usage()
    steady: Usage = Usage()
    init: Usage = Usage()
    evaluate: Usage = Usage()
    resume: Usage = Usage()
    state_bytes: int = 0
    reserved_bytes: dict[str, int] = field(default_factory=dict)
    flops_per_token: dict[str, float] = field(default_factory=dict)
    assumptions: tuple[str, ...] = field(default=())
    blocks: str = ""

    @property
    def tally(self) -> Tally:
        """Everything predicted of one steady step. The booked peak is the prediction of the allocator's."""
        return self.steady.tally + Tally((Account("allocated/peak", self.steady.peak.peak_bytes, "bytes"),))
