"""Loop: follows the training loop of a script, and changes what enters it as the run's order says."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, IterableDataset

from surefoot.debug.probe.changes import FEWEST, changed_batches, hash_of, permutation
from surefoot.debug.probe.copies import Copies
from surefoot.debug.probe.leaves import altered, as_batch, as_call, leaves, rows_of, samples_in
from surefoot.debug.probe.lineage import Lineage, role
from surefoot.debug.probe.order import Change, Order, Roles
from surefoot.debug.probe.others import Others
from surefoot.debug.probe.outputs import Outputs
from surefoot.debug.probe.said import Said, users_line
from surefoot.debug.probe.terms import Terms
from surefoot.randomness import kept
from surefoot.recipe.run_script import StopScript
from surefoot.torch_inside.patches import patched
from surefoot.torch_inside.processes import FETCHER

TAGGED = 3
"""Updates in which leaves are followed to the loss."""
DIGESTED = 5
"""Updates whose batches are compared between runs."""
OFTEN = 5
"""Evaluations, more than half as many as updates, that are taken for a part of training."""
_OF_WORKERS = ("num_workers", "prefetch_factor", "persistent_workers", "worker_init_fn", "timeout")


class Source:
    """A loader that the script iterates."""

    def __init__(self, loader: Any, number: int, *, trains: bool) -> None:
        self.loader, self.number, self.trains = loader, number, trains


class Loop:
    """What is known of a script while it runs, and what its batches undergo."""

    def __init__(self, order: Order, said: Said) -> None:
        self.order, self.said = order, said
        self.copies = Copies(len(order.copies), order.copy_seconds)
        self.outputs = Outputs(order.folder)
        self.lineage = Lineage(on=order.looks)
        self.terms = Terms(order)
        self.updates = 0
        self.losses: dict[int, float] = defaultdict(float)
        self.evaluations: list[int] = []
        self.batches: list[str] = []
        self.places: dict[str, str] = {}
        self.facts: dict[str, float] = {}
        self.changed = 0
        self.change: Change | None = None
        """Of a copy: what its evaluation undergoes."""
        self.last_lines: tuple[Any, ...] = ()
        self._sources: dict[int, Source] = {}
        self._current: Source | None = None
        self._in_pass = self._evaluating = self._warned = False
        self._depth = self._rows = 0
        self._trained: set[int] = set()
        self._optimizers: set[int] = set()
        self._again: Any = None
        self._others = Others(order, self)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._marks: list[float] = []

    # --------------------------------------------------------------------------------------- following

    @contextmanager
    def followed(self) -> Iterator[None]:
        """A context in which the script's loop is followed."""
        with ExitStack() as entered:
            entered.callback(register_optimizer_step_post_hook(self._update_ends).remove)
            for owner, name, make in (
                (DataLoader, "__init__", _without_workers(self)),
                (DataLoader, "__iter__", self._loader),
                (FETCHER, "fetch", self._others.fetching),
                (nn.Module, "__call__", self._calls),
                (torch.autograd, "backward", self._backward),
                (torch, "compile", lambda plain: _as_written),
            ):
                entered.enter_context(patched(owner, name, make))
            if self.order.looks or (self.order.roles.entry == "operation" and self.order.train == "fixed"):
                entered.enter_context(self.lineage)
            if self.order.train == "fixed" and self.order.roles.entry == "operation":
                self.lineage.swap = self._others.swapped
            yield

    def roles(self) -> Roles:
        """The roles of leaves, after the first updates."""
        found: dict[str, dict[str, str]] = {"loader": {}, "call": {}}
        for leaf in self._shapes:
            entry, _, path = leaf.partition(":")
            found[entry][path] = role(self.lineage.reached.get(leaf, set()))
        loaders = tuple(sorted(each.number for each in self._sources.values() if each.trains))
        return Roles(found["loader"], found["call"], self._shapes, loaders)

    @property
    def is_copy(self) -> bool:
        """Is this process a copy of the last evaluation?"""
        return self.copies.number is not None

    @property
    def evaluating(self) -> bool:
        """Is an evaluation running, or what follows it?"""
        return self._evaluating

    @property
    def is_over(self) -> bool:
        """Has it made its updates?"""
        return self.updates >= self.order.updates

    # --------------------------------------------------------------------------------------- loaders

    def _loader(self, plain: Any) -> Any:
        @functools.wraps(plain)
        def begins(loader: Any) -> Any:
            source = self._source(loader)
            if source.trains:
                self.places.setdefault("batch", users_line())
                return _Batches(self, source, plain(loader))
            self.places.setdefault("evaluation", users_line())
            self._evaluation_begins()
            batches = _Batches(self, source, plain(loader))
            if self.change is None or self.change.kind == "none" or self.order.roles.inputs_enter != "loader":
                return batches
            return iter(self._changed(list(batches), self.order.roles.loader))

        return begins

    def _source(self, loader: Any) -> Source:
        source = self._sources.get(id(loader))
        if source is None:
            number = len(self._sources)
            known = [each for each in self._sources.values() if each.trains]
            trains = any(each.loader.dataset is loader.dataset for each in known) or number in self.order.roles.loaders
            if not known and self.order.looks and not self.order.roles.loaders:
                trains = torch.is_grad_enabled()
            source = self._sources[id(loader)] = Source(loader, number, trains=trains)
        if not torch.is_grad_enabled():
            return Source(loader, source.number, trains=False)
        return source

    def trains_on(self, dataset: Any) -> bool:
        """Is this the data set of a loader that the script trains on?"""
        return any(each.trains and each.loader.dataset is dataset for each in self._sources.values())

    def _changed(self, batches: list[Any], roles: dict[str, str]) -> list[Any]:
        """The batches of a copy's evaluation, changed as it was told."""
        assert self.change is not None
        if self.change.kind == "sample" and self.changed:
            return batches
        if self.change.kind == "targets" and self.order.roles.entry != "loader":
            return batches
        made, count = changed_batches(batches, self.change, roles)
        self.changed += count
        return made

    def pass_goes_on(self, source: Source, read: int) -> bool:
        """Whether a pass over a training loader yields another batch. After the last update each yields one."""
        if not source.trains:
            return True
        self._in_pass = True
        if self.is_copy or (self.is_over and self._evaluated_after()):
            raise StopScript
        return not (self.is_over and self.order.evaluates and read)

    def pass_ends(self, source: Source) -> None:
        """A pass over a training loader is over."""
        self._in_pass = self._in_pass and not source.trains

    def entered(self, source: Source, batch: Any) -> Any:
        """A batch on its way from a loader into the loop."""
        self._current = source
        self._see("loader", batch)
        if self.order.train == "one batch" and source.number >= 0:
            batch = self._one_batch(source, batch)
        if source.trains:
            self._digest(batch)
        return batch

    def _one_batch(self, source: Source, batch: Any) -> Any:
        """The first training batch in place of every other; as many samples as the evaluation expects."""
        if self._again is None and source.trains:
            self._again = _cloned(batch)
        if self._again is None or set(leaves(batch)) != set(leaves(self._again)):
            return batch
        if source.trains:
            return _cloned(self._again)
        rows = torch.arange(samples_in(batch)) % max(1, samples_in(self._again))
        return altered(
            self._again, lambda path, leaf: leaf[rows] if isinstance(leaf, torch.Tensor) and leaf.dim() else leaf
        )

    def _digest(self, batch: Any) -> None:
        if len(self.batches) < DIGESTED:
            inputs = [leaf for path, leaf in leaves(batch).items() if self.order.roles.loader.get(path) != "target"]
            self.batches.append(hash_of(inputs))

    def _see(self, entry: str, batch: Any) -> None:
        """Looks at a batch in the first updates: its leaves and their forms."""
        if not self.order.looks or self.updates >= TAGGED:
            return
        self.lineage.enters(entry, batch)
        for path, leaf in leaves(batch).items():
            form = tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else (len(leaf), -1)
            self._shapes.setdefault(f"{entry}:{path}", form)

    # --------------------------------------------------------------------------------------- calls

    def _calls(self, plain: Any) -> Any:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if self._depth or next(module.parameters(), None) is None:
                out = plain(module, *args, **kwargs)
                if self.outputs.follows_modules:
                    self.outputs.inner(module, out)
                return out
            return self._called(module, args, kwargs, plain)

        return call

    def _called(self, module: Any, args: Any, kwargs: Any, plain: Any) -> Any:
        trains = torch.is_grad_enabled()
        if trains and not self._evaluating:
            self._trained.add(id(module))
            self.terms.called(module)
            self.places.setdefault("call", users_line())
            self._see("call", as_batch(args, kwargs))
            if self._current is None:
                self._digest(as_batch(args, kwargs))
        elif not trains and not self._in_pass and id(module) in self._trained:
            self.places.setdefault("evaluation", users_line())
            self._evaluation_begins()
        args, kwargs = self._call_changed(args, kwargs, trains=trains)
        self._rows = samples_in(as_batch(args, kwargs)) or self._rows
        if trains and self.lineage.swap is not None:
            self._others.called(as_batch(args, kwargs))
        self._depth, self.lineage.inside = self._depth + 1, True
        self.outputs.begins(self, self._rows)
        try:
            out = plain(module, *args, **kwargs)
        finally:
            self._depth, self.lineage.inside = self._depth - 1, False
        if self.is_copy:
            self.outputs.ends(module, out, self._rows)
        return out

    def _call_changed(self, args: Any, kwargs: Any, *, trains: bool) -> tuple[Any, Any]:
        """The arguments of a model, changed if that is where the change belongs."""
        roles = self.order.roles
        if self.change is not None and not trains and self.change.kind != "none":
            targets = self.change.kind == "targets" and roles.entry == "call"
            parts = self.change.kind == "part" and roles.inputs_enter == "call"
            if targets or parts:
                made, count = changed_batches([as_batch(args, kwargs)], self.change, roles.call)
                self.changed += count
                return as_call(made[0])
        if trains and self.order.train == "fixed" and roles.entry == "call" and not self._evaluating:
            return as_call(self._others.in_call(as_batch(args, kwargs)))
        return args, kwargs

    # --------------------------------------------------------------------------------------- updates

    def _backward(self, plain: Any) -> Any:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_copy or (self.is_over and self._evaluated_after()):
                raise StopScript
            if self._evaluating:
                self._evaluating = False
                self.last_lines = tuple(self.said.lines)
            self.places.setdefault("loss", users_line())
            losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            self.losses[self.updates] += sum(float(each.detach().sum()) for each in losses)
            if self.lineage.on:
                self.lineage.losses(losses)
            self.terms.losses(losses, self.updates)
            if self._current is not None and not self._current.trains and not self.order.roles.loaders:
                self._sources[id(self._current.loader)].trains = True
            return plain(tensors, *args, **kwargs)

        return backward

    def _update_ends(self, optimizer: Any, *_: Any) -> None:
        self.updates += 1
        self._optimizers.add(id(optimizer))
        self._others.update_ends()
        self.terms.update_ends(self.updates, optimizer)
        if self.updates == TAGGED:
            self.lineage.on = False
        self._marks.append(time.process_time())
        if self.order.looks and self.is_over:
            self._take_facts()
        if (self.is_over and not self.order.evaluates) or self.updates >= 2 * self.order.updates + 50:
            raise StopScript

    def _evaluated_after(self) -> bool:
        """Has an evaluation begun after the last update that was ordered?"""
        return bool(self.evaluations) and self.evaluations[-1] >= self.order.updates

    def _evaluation_begins(self) -> None:
        if self._evaluating or self.is_copy or not self.updates:
            return
        self.evaluations.append(self.updates)
        if len(self.evaluations) > OFTEN and 2 * len(self.evaluations) > self.updates:
            return
        self._evaluating = True
        self.said.lines.clear()
        if self.is_over:
            self.copies.make()
        else:
            self.copies.hold()
        if self.copies.number is not None:
            self._become(self.copies.number)

    def _become(self, number: int) -> None:
        """This process is a copy from here on: its evaluation undergoes a change."""
        self.change = self.order.copies[number]
        self.outputs.starts(self.change, keeps=number == 0)
        if self.change.kind == "targets" and self.order.roles.entry == "operation":
            self.lineage.swap = functools.partial(self._permuted, permutation_seed=self.change.seed)
            self.lineage.__enter__()  # type: ignore[no-untyped-call]

    def _permuted(self, tensor: torch.Tensor, rows: int, permutation_seed: int) -> torch.Tensor:
        """A constant that meets outputs in an evaluation, with its samples permuted."""
        samples = self._rows if self._rows and rows % self._rows == 0 else rows
        if samples < FEWEST:
            return tensor
        blocks = tensor.reshape(samples, rows // samples, *tensor.shape[1:])
        made = blocks[permutation(samples, permutation_seed)].reshape(tensor.shape)
        self.changed += not torch.equal(made, tensor)
        return made

    # --------------------------------------------------------------------------------------- facts

    def end(self) -> None:
        """Takes the numbers of the run, after the script."""
        self.facts["optimizers"] = len(self._optimizers)
        if len(self._marks) > TAGGED + 1:
            steady = self._marks[TAGGED:]
            self.facts["update_seconds"] = (steady[-1] - steady[0]) / (len(steady) - 1)

    def _take_facts(self) -> None:
        """Whether reading a sample again gives another input, or another target."""
        for source in self._sources.values():
            data = source.loader.dataset
            if source.trains and not isinstance(data, IterableDataset) and source.loader.collate_fn is not None:
                with kept():
                    self._read_twice(source.loader, data)
                return

    def _read_twice(self, loader: Any, data: Any) -> None:
        try:
            indices = range(min(8, len(data)))
            one, other = (loader.collate_fn([data[place] for place in indices]) for _ in range(2))
        except Exception:
            return  # a data set of another kind: whether it draws anew stays unknown
        ours, theirs = leaves(one), leaves(other)
        inputs = [path for path, ways in self._roles_now().items() if ways in ("input", "both") and path in ours]
        targets = [path for path, ways in self._roles_now().items() if ways == "target" and path in ours]
        self.facts["inputs_move"] = float(any(_moved(ours[path], theirs[path]) for path in inputs))
        self.facts["inputs_keep_values"] = float(all(_keeps_values(ours[path], theirs[path]) for path in inputs))
        self.facts["targets_move"] = float(any(_moved(ours[path], theirs[path]) for path in targets))
        dense = [path for path in targets if _is_dense(ours[path], [ours[each] for each in inputs])]
        self.facts["dense_targets"] = float(bool(dense))

    def _roles_now(self) -> dict[str, str]:
        return self.roles().loader


class _Batches:
    """A loader's iterator, which the loop takes batches from."""

    def __init__(self, loop: Loop, source: Source, plain: Any) -> None:
        self._loop, self._source, self._plain, self._read = loop, source, plain, 0

    def __iter__(self) -> _Batches:
        return self

    def __len__(self) -> int:
        return len(self._plain)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def __next__(self) -> Any:
        if not self._loop.pass_goes_on(self._source, self._read):
            self._loop.pass_ends(self._source)
            raise StopIteration
        try:
            batch = next(self._plain)
        except StopIteration:
            self._loop.pass_ends(self._source)
            raise
        self._read += 1
        return self._loop.entered(self._source, batch)


def _without_workers(loop: Loop) -> Any:
    """Loaders of a rerun read in the process itself: copies of a process do not share workers."""

    def make(plain: Any) -> Any:
        @functools.wraps(plain)
        def begin(loader: Any, *args: Any, **kwargs: Any) -> None:
            if kwargs.get("num_workers"):
                loop.facts["workers"] = max(loop.facts.get("workers", 0), kwargs["num_workers"])
                for name in (*_OF_WORKERS, "multiprocessing_context"):
                    kwargs.pop(name, None)
            plain(loader, *args, **kwargs)

        return begin

    return make


def _as_written(model: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`torch.compile` that compiles nothing, called or as a decorator."""
    return model if model is not None else lambda function: function


def _cloned(batch: Any) -> Any:
    def clone(path: str, leaf: Any) -> Any:
        return leaf.clone() if isinstance(leaf, torch.Tensor) else [each.clone() for each in leaf]

    return altered(batch, clone)


def _moved(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape != other.shape or not torch.equal(one, other)
    return isinstance(one, list) and any(_moved(*pair) for pair in zip(one, other, strict=False))


def _keeps_values(one: Any, other: Any) -> bool:
    """Do two readings have about the same mean and spread, as flips and shifts leave them and noise does not?"""
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.is_floating_point()):
        return True
    spread = float(one.std()) or 1.0
    mean = float((one.mean() - other.mean()).abs())
    return mean < 0.1 * spread and abs(float(other.std()) - spread) < 0.1 * spread


def _is_dense(target: Any, inputs: list[Any]) -> bool:
    """Does a target say where something is: boxes, points or a mask, and not a picture like the input?"""
    if not isinstance(target, torch.Tensor) or rows_of(target) < 1:
        return isinstance(target, list)
    pictures = any(isinstance(each, torch.Tensor) and each.shape == target.shape for each in inputs)
    return target.dim() > 1 and not (pictures and target.is_floating_point())
