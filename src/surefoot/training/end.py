"""The end of a run: keeps the weights, counts the tokens, and says why and in which state the run ended."""

from __future__ import annotations

from dataclasses import replace

from surefoot.checkpoint.state import restore_model
from surefoot.checkpoint.store import Checkpoints
from surefoot.data.token_ledger import ledger_of_run
from surefoot.errors import CheckpointError
from surefoot.records.run import Run, Status
from surefoot.records.token_ledger import TokenLedger
from surefoot.step import Step
from surefoot.training.run_data import RunData
from surefoot.training.run_writer import RunWriter


def with_weights(run: Run, step: Step, scribe: RunWriter, checkpoints: Checkpoints, *, best: int) -> Run:
    """Writes the weights of the best step, or of the last one. The run then holds their size and digest."""
    of_step = step.number
    if best:
        of_step = _go_to_best(run, step, scribe, checkpoints, best)
    with step.averaged():
        kept_as = scribe.keep_weights(run, step.model)
    if kept_as is not None:
        run = replace(run, weights_bytes=kept_as.bytes, weights_digest=kept_as.xxh3_128)
    return replace(run, weights_step=of_step)


def _go_to_best(run: Run, step: Step, scribe: RunWriter, checkpoints: Checkpoints, best: int) -> int:
    """Fills the model with the weights of the best step, if its checkpoint is there. Returns the step they are of."""
    found = next((each for each in checkpoints if each.step == best), None)
    try:
        if found is None:
            raise CheckpointError(f"{run.checkpoints} does not hold it")
        found.verify()
    except CheckpointError as error:
        scribe.tell_of(run, step.number, "best-lost", f"the weights are of the last step, not of step {best}: {error}")
        return step.number
    restore_model(step, found)
    return best


def ended(run: Run, step: Step, data: RunData, scribe: RunWriter, *, stopped: str, done: bool) -> Run:
    """The run after its last step, or after the step at which a signal stopped it."""
    reason = "" if done else f"stopped by {stopped} after step {step.number}"
    reason = "; ".join(filter(None, (reason, scribe.last_events(run))))
    status: Status = "finished" if done else "interrupted"
    return replace(run, status=status, reason=reason, token_ledger=_tokens(run, data))


def failed(run: Run, error: BaseException) -> Run:
    """The run after an exception. Ctrl-C interrupts it; anything else counts as a failure."""
    is_failure = not isinstance(error, KeyboardInterrupt)
    return replace(
        run,
        status="failed" if is_failure else "interrupted",
        reason=f"{type(error).__name__}: {error}".strip(": "),
        failures=run.failures + is_failure,
    )


def _tokens(run: Run, data: RunData) -> TokenLedger | None:
    """Counts how the tokens of the data were used. None if the data is not made of tokens."""
    recipe = data.recipe
    return ledger_of_run(
        data.batches.dataset,
        seed=recipe.seed,
        step_samples=recipe.tokens_per_step // recipe.tokens_per_sample,
        steps=data.batch,
        passed_over=run.passed_over,
    )
