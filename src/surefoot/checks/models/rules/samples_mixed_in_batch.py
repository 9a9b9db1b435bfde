"""samples-mixed-in-batch

## What it does
Reports a model in evaluation mode whose output for one sample changes when another sample is changed.

## Why it hurts
Samples are mixed up inside: `view` where `transpose` was meant, or a recurrent or attention layer that
takes the batch for time. It learns what the neighbours in a batch happen to be.

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
statistics; scores of each sample with each; contexts beside queries; rows that are the steps of one sequence or the
members of one set. Where the order of samples does not matter, it is a fault only of samples that were drawn by a
loader, or from an array, and have targets of their own.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import LEAKS, ModelFacts
from surefoot.records.finding import Finding


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for probe in model_facts.probes:
        mixed = probe.other_samples > LEAKS and not probe.relational and not probe.softmax_over_batch
        if probe.time_over_samples:
            seen = f"{probe.time_over_samples} takes the samples of a batch for its time"
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
            why="what a sample gives depends on which others it is with",
            remedy="look for view or reshape in place of transpose, for batch_first, and for sums over dim 0",
        )
