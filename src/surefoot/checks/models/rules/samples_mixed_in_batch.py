"""samples-mixed-in-batch

## What it does
Reports a model in evaluation mode whose output for one sample changes when another sample is changed.

## Why it hurts
Samples are mixed up inside: `view` instead of `transpose`, or a recurrent or attention layer that treats the batch as
time. The model learns from whatever else is in the batch.

## Buggy
```python
self.lstm = nn.LSTM(width, width)
out, _ = self.lstm(x)  # x is (batch, time, width)
```

## Fixed
```python
self.lstm = nn.LSTM(width, width, batch_first=True)
out, _ = self.lstm(x)
```

## What looks like it and is fine
Graph networks, whose inputs or buffers relate samples; time-major code; BatchNorm in training mode or without running
statistics; scores of each sample with each; contexts next to queries; rows that are the steps of one sequence or the
members of one set. If the order of samples does not matter, it is a bug only if a loader drew the samples, or an
index into an array, and they have targets of their own.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import LEAKS, ModelFacts
from surefoot.records.finding import Finding


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for probe in model_facts.probes:
        mixed = probe.other_samples > LEAKS and not probe.relational and not probe.softmax_over_batch
        if probe.time_over_samples:
            seen = f"{probe.time_over_samples} treats the samples of a batch as time steps"
        elif mixed:
            seen = (
                f"outputs of other samples change by {probe.other_samples:.2g} standard deviations when one "
                "sample is changed"
            )
        else:
            continue
        yield Finding(
            check="samples-mixed-in-batch",
            severity="warning",
            seen=seen,
            where=probe.time_over_samples or probe.model,
            why="the output of a sample depends on the other samples in its batch",
            remedy="look for view or reshape instead of transpose, for batch_first, and for sums over dim 0",
        )
