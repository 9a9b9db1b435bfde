"""The state of a training step: everything that the next step depends on, saved and restored bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import torch
from torch.nn.parallel import DistributedDataParallel

from surefoot.checkpoint.checkpoint import Checkpoint
from surefoot.checkpoint.outline import Place, Saved, leaves, map_leaves
from surefoot.checkpoint.staging import sharded_like
from surefoot.errors import CheckpointError
from surefoot.torch_inside.modules import unsaved_buffers
from surefoot.trees import local_part

State = dict[str, Any]


class Stepping(Protocol):
    """The attributes of a `Step` that are saved. Any object that has them can be saved."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any
    scaler: Any


def state_of(step: Stepping) -> State:
    """The state of a step. Its tensors are not copied."""
    return {
        "number": getattr(step, "number", 0),
        "model": _live(step.model),
        "transient": _transient(step.model),
        "extra": {_plain(name): value for name, value in _extra(step.model).items()},
        "optimizer": _optimizer_state(step.optimizer, _names(step.model)),
        "scheduler": step.scheduler.state_dict(),
        "scaler": step.scaler.state_dict(),
        **_averages(step),
    }


def restore(step: Stepping, checkpoint: Checkpoint) -> State:
    """Restores a step, and returns the saved state with everything else that was saved with it.

    Parameters and buffers are filled in place. Optimizer state is read directly to its device and sharding.
    """
    try:
        return _restored(step, checkpoint)
    except CheckpointError:
        raise
    except Exception as error:  # the hashes were right: the state was forged, or is of another optimizer
        raise CheckpointError(
            f"{checkpoint.path.name} holds a state that surefoot cannot restore: {error!r}"
        ) from error


def restore_model(step: Stepping, checkpoint: Checkpoint) -> None:
    """Fills a step's model and averages with the saved ones. The optimizer's state is not kept."""
    model, held = step.model, _averages_into(step, checkpoint)
    outline, live, extra = checkpoint.outline(), _live(model), {_plain(name): name for name in _extra(model)}
    _refuse_another_model({*outline["model"], *outline["extra"]}, {*live, *extra})
    if extra:
        state = checkpoint.load({"model": live, **held})
        _bare(model).load_state_dict({extra[name]: state["extra"][name] for name in extra}, strict=False)
    else:
        averages = {outline["ema"]["averages"][name].name: each for name, each in _averages_of(held).items()}
        tensors = {outline["model"][name].name: tensor for name, tensor in reversed(live.items())}
        checkpoint.read({**tensors, **averages})


def _restored(step: Stepping, checkpoint: Checkpoint) -> State:
    outline, live, names = checkpoint.outline(), _live(step.model), _names(step.model)
    extra = {_plain(name): name for name in _extra(step.model)}
    _refuse_another_model({*outline["model"], *outline["extra"]}, {*live, *extra})
    room = _room(outline["optimizer"]["state"], {name: parameter for parameter, name in names.items()})
    state: State = checkpoint.load({"model": live, "optimizer": {"state": room}, **_averages_into(step, checkpoint)})
    if extra:
        _bare(step.model).load_state_dict({extra[name]: state["extra"][name] for name in extra}, strict=False)
    _restore_optimizer(step.optimizer, state["optimizer"], names)
    step.scheduler.load_state_dict(state["scheduler"])
    step.scaler.load_state_dict(state["scaler"])
    _restart_averages(step, state)
    if hasattr(step, "number"):
        if type(state["number"]) is not int or state["number"] < 0:
            raise CheckpointError(f"{checkpoint.path.name} holds the state of step {state['number']!r}")
        step.number = state["number"]
    return state


# ---------------------------------------------------------------------------------------- the model


def _bare(model: torch.nn.Module) -> torch.nn.Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def _plain(name: str) -> str:
    """The name of a parameter without the prefix that torch.compile adds."""
    return name.replace("_orig_mod.", "")


def _names(model: torch.nn.Module) -> dict[torch.Tensor, str]:
    return {parameter: _plain(name) for name, parameter in _bare(model).named_parameters()}


def _live(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and buffer under all of its names, with non-persistent ones. Tied ones are the same tensor."""
    parameters = _bare(model).named_parameters(remove_duplicate=False)
    buffers = _bare(model).named_buffers(remove_duplicate=False)
    named = {_plain(name): tensor for name, tensor in (*parameters, *buffers)}
    detached = {id(tensor): tensor.detach() for tensor in named.values()}
    return {name: detached[id(tensor)] for name, tensor in named.items()}


def _transient(model: torch.nn.Module) -> list[str]:
    """The names of non-persistent buffers. A resume restores them; exported weights leave them out."""
    modules = _bare(model).named_modules(remove_duplicate=False)
    return sorted(
        _plain(f"{prefix}.{name}" if prefix else name) for prefix, module in modules for name in unsaved_buffers(module)
    )


def _extra(model: torch.nn.Module) -> State:
    """The rest of the state dict: the extra state of modules that have one."""
    live = _live(model)
    return {name: value for name, value in _bare(model).state_dict().items() if _plain(name) not in live}


def _refuse_another_model(saved: set[str], here: set[str]) -> None:
    if saved == here:
        return
    parts = (("only in the checkpoint", saved - here), ("only in this model", here - saved))
    texts = [f"{title}: {', '.join(sorted(names)[:5])}" for title, names in parts if names]
    raise CheckpointError(f"the checkpoint belongs to another model; {'; '.join(texts)}")


# ---------------------------------------------------------------------------------------- averages of weights


def _averages(step: Stepping) -> State:
    """The averages of a step that keeps them; nothing otherwise."""
    ema = getattr(step, "ema", None)
    return {} if ema is None else {"ema": {"updates": ema.updates, "averages": dict(ema.tensors)}}


def _averages_into(step: Stepping, checkpoint: Checkpoint) -> State:
    """Where saved averages go. Nothing if the checkpoint has none, or the step keeps none."""
    return {} if "ema" not in checkpoint.outline() else _averages(step)


def _averages_of(held: State) -> dict[str, torch.Tensor]:
    return held["ema"]["averages"] if held else {}


def _restart_averages(step: Stepping, state: State) -> None:
    """Counts on from a checkpoint; from one without averages, they begin with its weights."""
    ema = getattr(step, "ema", None)
    if ema is None:
        return
    if "ema" in state:
        ema.updates = state["ema"]["updates"]
    else:
        ema.restart()


# ---------------------------------------------------------------------------------------- the optimizer


def _optimizer_state(optimizer: torch.optim.Optimizer, names: dict[torch.Tensor, str]) -> State:
    """The optimizer's state dict, with parameter names instead of numbers."""
    packed, order = optimizer.state_dict(), _order(optimizer, names)
    state = {_renamed(key, order): values for key, values in packed["state"].items()}
    groups = [{**group, "params": [order[number] for number in group["params"]]} for group in packed["param_groups"]]
    return {"state": state, "param_groups": groups}


def _order(optimizer: torch.optim.Optimizer, names: dict[torch.Tensor, str]) -> list[str]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    strangers = [tuple(parameter.shape) for parameter in parameters if parameter not in names]
    if strangers:
        raise CheckpointError(f"the optimizer has parameters that are not in the model, of shapes {strangers[:5]}")
    return [names[parameter] for parameter in parameters]


def _renamed(key: Any, order: list[str]) -> Any:
    return order[key] if isinstance(key, int) else key


def _room(state: State, parameters: dict[str, torch.Tensor]) -> State:
    """Allocates memory for state that has the shape of its parameter, on the same device and sharded like it."""

    def like(parameter: torch.Tensor, _: Place, leaf: Any) -> torch.Tensor | None:
        if not isinstance(leaf, Saved) or (leaf.shape, leaf.device) != (tuple(parameter.shape), parameter.device.type):
            return None
        return sharded_like(parameter, torch.empty_like(local_part(parameter), dtype=leaf.dtype, requires_grad=False))

    return {
        name: map_leaves(partial(like, parameters[name]), values)
        for name, values in state.items()
        if name in parameters
    }


def _restore_optimizer(optimizer: torch.optim.Optimizer, saved: State, names: dict[torch.Tensor, str]) -> None:
    order = _order(optimizer, names)
    numbers = {name: number for number, name in enumerate(order)}
    here = [sorted(names[parameter] for parameter in group["params"]) for group in optimizer.param_groups]
    there = [sorted(group["params"]) for group in saved["param_groups"]]
    if here != there:
        raise CheckpointError("the optimizer in the checkpoint has its parameters in other groups")
    groups, first = [], 0
    for group in saved["param_groups"]:
        groups.append({**group, "params": list(range(first, first + len(group["params"])))})
        first += len(group["params"])
    state = {numbers.get(key, key): values for key, values in saved["state"].items()}
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    _undo_casts(optimizer, saved["state"], names)


def _undo_casts(optimizer: torch.optim.Optimizer, saved: State, names: dict[torch.Tensor, str]) -> None:
    """Restores dtypes: `load_state_dict` casts all state to the parameter's dtype, even if it had another."""

    def uncast(exact: dict[Place, Any], place: Place, value: Any) -> Any:
        kept = exact.get(place)
        if isinstance(value, torch.Tensor) and isinstance(kept, torch.Tensor) and kept.dtype != value.dtype:
            return kept.to(value.device)
        return value

    for parameter in list(optimizer.state):
        if parameter in names:
            exact = dict(leaves(saved[names[parameter]]))
            optimizer.state[parameter] = map_leaves(partial(uncast, exact), optimizer.state[parameter])
