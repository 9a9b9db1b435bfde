"""gradients-into-fixed-network

## What it does
Reports a model that no optimizer holds but whose parameters receive gradients that nothing before it needs. Also
reports a model that follows another of its shape by hand but is trained as well.

## Why it hurts
A target network or teacher that is not detached receives gradients. Half of the work of the backward is wasted, and
if the target shares layers with the trained model, it chases its own prediction.

## Buggy
```python
wanted = reward + 0.99 * target(following).max(1).values
loss = F.mse_loss(online(state), wanted)
```

## Fixed
```python
with torch.no_grad():
    wanted = reward + 0.99 * target(following).max(1).values
loss = F.mse_loss(online(state), wanted)
```

## What looks like it and is fine
A frozen network that the gradient passes through on its way to a trained one, as in a perceptual loss; copies that
are trained by hand for one update, as in meta-learning; networks with optimizers of their own, of which the worst
continues from the weights of the best. A model of which some parameters are frozen is no target: the others are
reported by `parameter-outside-optimizer`.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.models import ModelFacts, Parameter
from surefoot.records.finding import Finding


def fixed_networks(loop_facts: LoopFacts, model_facts: ModelFacts) -> set[str]:
    """Models that ran, receive gradients, and are held by no optimizer, while another model is."""
    by_model: dict[str, list[bool]] = {}
    for each in model_facts.parameters:
        by_model.setdefault(each.model, []).append(each.optimized)
    graded = {forward.model for forward in loop_facts.forwards if forward.input_graded}
    if sum(any(held) for held in by_model.values()) == 0:
        return set()
    chosen = {each.model for each in model_facts.parameters if not each.trainable}
    """Models with frozen parameters: what is left trainable was meant to be trained."""
    return {model for model, held in by_model.items() if not any(held) and model not in graded | chosen}


def _is_brief(loop_facts: LoopFacts, model: str) -> bool:
    """Did it run for one update only, like a copy that is trained by hand?"""
    return len(loop_facts.updates) >= 2 > len({each.update for each in loop_facts.forwards if each.model == model})


def followers(model_facts: ModelFacts) -> Iterator[str]:
    """Models that are overwritten as a whole between updates, while another of the same shape is not."""
    models: dict[str, list[Parameter]] = {}
    for each in model_facts.parameters:
        models.setdefault(each.model, []).append(each)
    trained = {name: held for name, held in models.items() if all(each.optimized and each.reached for each in held)}
    shapes = {name: [each.elements for each in held] for name, held in trained.items()}
    leaders = [shapes[name] for name, held in trained.items() if not any(each.follows for each in held)]
    yield from (n for n, held in trained.items() if all(each.follows for each in held) and shapes[n] in leaders)


def taught_copies(model_facts: ModelFacts) -> Iterator[str]:
    """Copies, also those inside a model, that are meant to follow a trained network and are trained as well."""
    for each in model_facts.shadows:
        if each.trained and each.follows and (len(each.shares) + each.elsewhere >= 2 or each.copied):
            yield each.name


def check(loop_facts: LoopFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    for model in list(followers(model_facts)) or taught_copies(model_facts):
        yield Finding(
            check="gradients-into-fixed-network",
            severity="warning",
            seen=f"{model} follows another network, like a teacher or target, but an optimizer trains it too",
            where=model,
            why="the target chases the model that it should guide, and both can meet anywhere",
            remedy="call it under torch.no_grad(), and remove its parameters from the optimizer",
        )
    for model in sorted(fixed_networks(loop_facts, model_facts)):
        reached = [each for each in model_facts.parameters if each.model == model and each.trainable and each.reached]
        if reached and not _is_brief(loop_facts, model):
            yield Finding(
                check="gradients-into-fixed-network",
                severity="warning",
                seen=f"{len(reached)} parameters of {model} receive gradients, but no optimizer holds it, and "
                "nothing before it needs them",
                where=model,
                why="the gradient flows into the target: the backward does needless work, and a target that shares "
                "layers with the model chases it",
                remedy="call it under torch.no_grad(), or freeze it with requires_grad_(False)",
            )
