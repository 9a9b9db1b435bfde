"""made-and-never-used

## What it does
Reports what a script makes and never uses, of the things that have no use other than being used: a loader or a data
set that nothing iterates, a held-out part of the data, a copy of the weights that is never loaded, a function that
evaluates and is never called, a mask, a random order, a generator, a term of a loss, the output of a layer that
`forward` drops, a set of what was seen that is never asked, and a state kept for the next iteration that begins anew.

## Why it hurts
The code reads as if it validated, masked or kept the best weights, and does not. Nothing fails: the value is computed
and thrown away.

## Buggy
```python
mask = tokens != PAD
scores = query @ key.transpose(1, 2)
weights = scores.softmax(-1)
```

## Fixed
```python
mask = tokens != PAD
scores = query @ key.transpose(1, 2)
weights = scores.masked_fill(~mask[:, None], float("-inf")).softmax(-1)
```

## What looks like it and is fine
Names that begin with an underscore; one of several values of a call, such as the state that a recurrent layer returns;
numbers, lists and texts; what another file may import; a script that reads names by `locals()` or `eval()`.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.records.finding import Finding

_MOST = 3
_REMEDIES = {
    "copy of the weights": "load it before the model is evaluated or saved: model.load_state_dict(...)",
    "function that evaluates": "call it where the model is to be evaluated, or remove it",
    "generator": "pass it to what draws: generator=...",
    "loader": "iterate it where the model is evaluated, or remove it",
    "loss term": "add it to the loss that backward is called on, or remove it",
    "mask": "pass it on to what it is made for, or remove it",
    "order": "index inputs and targets with it, or remove it",
    "output of a layer": "return it or pass it on, or remove the layer",
    "state carried by the loop": "set it to its first value before the loop, not inside it",
}
_WHY = {
    "copy of the weights": "the weights of the last step are used in place of the kept ones",
    "function that evaluates": "what it measures is never measured",
    "loader": "nothing is measured on its samples",
    "loss term": "it trains nothing",
    "mask": "nothing is masked",
    "output of a layer": "the layer has no effect",
    "state carried by the loop": "every iteration begins without what the one before it saw",
}


def check(evaluation_facts: EvaluationFacts) -> Iterator[Finding]:
    for each in evaluation_facts.never_used[:_MOST]:
        kind = each.kind.partition(" that `")[0]
        what = "gets another value before anything reads it" if each.overwritten else "is made, and nothing uses it"
        if " that `" in each.kind:
            what = "is never read there"
        elif kind == "function that evaluates":
            what = "is never called"
        article = {"output of a layer": "the", "order": "an"}.get(kind, "a")
        yield Finding(
            check="made-and-never-used",
            severity="warning",
            seen=f"`{each.name}`, {article} {each.kind}, {what}",
            where=each.where,
            why=_WHY.get(kind, "the script does not do what it seems to do"),
            remedy=_REMEDIES.get(kind, "use it where it was meant, or remove it"),
        )
