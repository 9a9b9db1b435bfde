"""interleaved-zero-tokens

## What it does
Reports tokens of which only every second, fourth or eighth is nonzero.

## Why it hurts
A file of 32-bit tokens that is read as 16-bit yields each token followed by a zero; 64-bit tokens yield three zeros.
The model learns to predict zeros, and the loss is a fraction of what it should be.

## Buggy
```python
tokens = np.memmap("train.bin", dtype=np.uint16)  # written as int32
```

## Fixed
```python
tokens = np.memmap("train.bin", dtype=np.int32)
```

## What looks like it and is fine
Padding with zeros at the end of rows.
"""

from collections.abc import Iterator

from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding

EXPLAINS = ("padding-in-loss", "targets-shifted-twice", "targets-equal-inputs")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    for inputs in sample_facts.inputs:
        if inputs.zero_interleaved:
            yield Finding(
                check="interleaved-zero-tokens",
                severity="error",
                seen=f"of the tokens {inputs.shape} that enter {inputs.layer}, at most every second is nonzero",
                where=inputs.layer,
                why="a file of wide tokens is read as narrow ones: the model learns to predict zeros",
                remedy="read tokens with the dtype they were written with",
            )
            return
