"""base-trained-beside-adapters

## What it does
Reports weights that were trained although adapters, as LoRA has them, stand beside them.

## Why it hurts
Adapters are there so that the base stays as it is. If the base moves too, memory is that of full fine-tuning, and a
file with the adapters alone does not hold what was learned: on the first base they give another model.

## Buggy
```python
model = get_peft_model(model, config)
model.requires_grad_(True)
```

## Fixed
```python
model = get_peft_model(model, config)  # it has frozen the base
```

## What looks like it and is fine
Embeddings, norms or a head that are trained beside adapters on other layers; adapters that are merged into the base;
a base that was trained before it got its adapters.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    trained = [each for each in model_facts.adapters if each.base_trained]
    if trained:
        yield Finding(
            check="base-trained-beside-adapters",
            severity="error",
            seen=f"{counted(len(trained), 'weight')} with adapters beside them were trained and moved: "
            + ", ".join(each.name for each in trained[:3])
            + (", ..." if len(trained) > 3 else ""),
            where=trained[0].name,
            why="a file with the adapters alone does not hold what was learned",
            remedy="freeze the base: requires_grad_(False) on its parameters, before the optimizer is made",
        )
