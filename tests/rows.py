"""Rows of a log, made by hand."""

from surefoot.records.log import LogRow


def log_row(step: int, *, loss: float, seconds: float = 0.9, evaluation_loss: float | None = None) -> LogRow:
    return LogRow(
        step=step, loss=loss, grad_norm=1.5, clipped_norm=1.0, lr=1e-3, tokens=8192, samples=(1, 2),
        samples_digest="d", updated=True, seconds=seconds, data_seconds=0.01, evaluation_loss=evaluation_loss,
    )  # fmt: skip
