"""The end of a run: keeps the weights, counts the tokens, and says why and in which state the run ended."""

from __future__ import annotations

from dataclasses import replace

from surefoot.checkpoint.state import restore_model
from surefoot.checkpoint.store import Checkpoints
from surefoot.data.token_ledger import ledger_of_run
from surefoot.errors import CheckpointError, DiskError, RankLost
from surefoot.records.run import Run, Status
from surefoot.records.token_ledger import TokenLedger
from surefoot.step import Step
from surefoot.training.run_data import RunData
from surefoot.training.run_writer import RunWriter


def with_weights(run: Run, step: Step, writer: RunWriter, checkpoints: Checkpoints, *, best: int) -> Run:
    """Writes the weights of the best step, or of the last one. The run then holds their size and digest."""
    of_step = step.number
    if best:
        of_step = _go_to_best(run, step, writer, checkpoints, best)
    try:
        with step.averaged():
            kept_as = writer.keep_weights(run, step.model)
    except DiskError as error:
        raise DiskError(f"{run.unsaved}; and {error}" if run.unsaved else str(error)) from error
    if kept_as is not None:
        run = replace(run, weights_bytes=kept_as.bytes, weights_digest=kept_as.xxh3_128)
    return replace(run, weights_step=of_step)


def _go_to_best(run: Run, step: Step, writer: RunWriter, checkpoints: Checkpoints, best: int) -> int:
    """Fills the model with the weights of the best step, if its checkpoint is there. Returns the step they are of."""
    found = next((each for each in checkpoints if each.step == best), None)
    try:
        if found is None:
            raise CheckpointError(f"{run.checkpoints} does not hold it")
        found.verify()
    except CheckpointError as error:
        writer.tell_of(run, step.number, "best-lost", f"the weights are of the last step, not of step {best}: {error}")
        return step.number
    restore_model(step, found)
    return best


def ended(run: Run, step: Step, data: RunData, writer: RunWriter, *, stopped: str, done: bool) -> Run:
    """The run after its last step, or after the step at which a signal stopped it."""
    reason = "" if done else f"stopped by {stopped} after step {step.number}"
    reason = "; ".join(filter(None, (reason, lacking(run, done=done), writer.last_events(run))))
    status: Status = "finished" if done else "interrupted"
    return replace(run, status=status, reason=reason, token_ledger=_tokens(run, data))


def lacking(run: Run, *, done: bool) -> str:
    """What a run without its last checkpoint lacks, what it has, and what to do. Empty if it has that checkpoint."""
    if not run.unsaved:
        return ""
    weights = f"{run.weights.name} {'was' if done else 'was not'} written"
    if run.saved_step or not done:
        again = f"repair the disk or make room, then run the same command again: it resumes from step {run.saved_step}"
    else:
        again = "no step was saved, so training on from it needs a new run in another directory"
    return f"the last checkpoint is missing: {run.unsaved}; {weights}; {again}"


def reopened(run: Run) -> Run:
    """A finished run without its last checkpoint resumes from an older one, if there is one. All ranks must call it."""
    if run.status != "finished" or not run.unsaved:
        return run
    try:
        older = Checkpoints(run.checkpoints).newest()
    except CheckpointError:
        older = None
    return run if older is None else replace(run, status="running", starts=run.starts + 1, reason="", unsaved="")


def failed(run: Run, error: BaseException) -> Run:
    """The run after an exception. Ctrl-C interrupts it; a rank that was killed is no failure of the run's own."""
    counts = not isinstance(error, KeyboardInterrupt) and not (isinstance(error, RankLost) and error.killed)
    return replace(
        run,
        status="interrupted" if isinstance(error, KeyboardInterrupt) else "failed",
        reason=f"{type(error).__name__}: {error}".strip(": "),
        failures=run.failures + counts,
    )


def _tokens(run: Run, data: RunData) -> TokenLedger | None:
    """Counts how the tokens of the data were used. None if the data is not made of tokens."""
    recipe = data.recipe
    return ledger_of_run(
        data.batches.dataset,
        seed=recipe.seed_of_data,
        step_samples=recipe.samples_per_step,
        steps=data.batch,
        passed_over=run.passed_over,
    )
