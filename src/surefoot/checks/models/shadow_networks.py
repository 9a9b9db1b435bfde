"""Follows networks that are built like a trained one: averages of weights, targets, teachers, references."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.file_contents import Contents
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, fingerprint, fingerprints, readable
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.models import ModelFacts, Shadow
from surefoot.checks.loop.forwards import Forwards
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.loop.modes import is_batch_norm
from surefoot.checks.models.networks_in_sight import (
    Network,
    Shape,
    Sighting,
    are_key_and_query,
    chosen_of,
    has_structure,
    in_sight,
    is_shadow_name,
    structure,
)
from surefoot.torch_inside.modes import aside

_MOST_PAIRS, _MOST_MODULES = 16, 1024
_SEARCHED = {0, 1, 2, 4, 8, 16, 32, 64}
"""The numbers of updates after which variables are searched for networks."""
_CLOSELY, _THEN_EVERY = 100, 32
"""Weights are compared before and after this many updates, then only now and then."""
_INPUTS = 64
"""How many values of an input are hashed."""
_MOST_READ = 256
"""The most evaluations whose weights are compared."""
_OFF_LINE = 0.1
"""A change towards the other network is one along a straight line: its distance from the line is at most this share."""


@dataclass(eq=False)
class _Pair:
    """A network that no loss trains, and a trained one of the same structure."""

    shadow: Network
    source: Network
    born: int
    """The number of updates before it was first seen."""
    copied: bool
    """Both had the same values at that time."""
    first: torch.Tensor
    last: torch.Tensor
    """Its first values, and the last that were read."""
    statistics: str = ""
    """A BatchNorm layer of the shadow whose statistics were the initial ones when it was first seen."""
    after: tuple[torch.Tensor, torch.Tensor] | None = None
    """The values of source and shadow after the last update."""
    compared: object = None
    """The last of these that were compared with the values before the next update."""
    apart: int = 0
    """The number of updates after which both had different values."""
    shares: list[float] = field(default_factory=list)
    """How far the shadow moved towards the source, each time that it changed between two updates."""
    elsewhere: int = 0
    """How often it changed in another way."""
    pulls: int = 0
    """How often the source moved towards the shadow between two updates, while the shadow stayed."""
    aliased: bool = False
    trained: bool = False
    """A loss trains the shadow, too."""
    calls: set[int] = field(default_factory=set)
    """The update counts at which the shadow was called while both had different values."""
    called: bool = False
    used: bool = False
    """Its values were evaluated, saved or copied to another network."""
    raw: int = 0
    """How often the source was evaluated or saved with its own values, while the shadow had others."""
    stale: str = ""
    entered: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    """Hashes of what entered the source with gradients on, and of what entered the shadow."""
    taken: int = 0
    """How often the state of the shadow was taken since the last update."""
    most_taken: int = 0
    """The same, at most, in a gap in which the shadow was updated."""

    def begins(self) -> None:
        """Compares both with what they were after the last update."""
        now = self._now()
        if now is None or self.after is None or self.compared is self.after:
            return
        self.compared, self.last = self.after, now[1]
        (source, shadow), (was_source, was_shadow) = now, self.after
        moved, overwritten = not torch.equal(shadow, was_shadow), not torch.equal(source, was_source)
        self.aliased |= self._share_memory()
        self._count_taken(moved=moved)
        if moved and not overwritten:
            share = _share(was_shadow, shadow, was_source)
            self.elsewhere += share is None
            self.shares += [] if share is None else [share]
        elif moved:
            self.elsewhere += 1
        elif overwritten:
            share = _share(was_source, source, was_shadow)
            self.pulls += share is not None and share > 0

    def ends(self) -> None:
        """Notes both after an update."""
        self.after = self._now()
        if self.after is not None:
            self.last = self.after[1]
            self.apart += not torch.equal(*self.after)

    def _count_taken(self, *, moved: bool) -> None:
        """A state that is taken to update the shadow itself is not used. One that is taken besides is."""
        self.used |= self.taken > (self.most_taken if moved and self.shares else self.taken if moved else 0)
        self.most_taken = max(self.most_taken, self.taken if moved else 0)
        self.taken = 0

    def keeps(self) -> bool:
        """Does the shadow still have its first values?"""
        now = self.shadow.values()
        return torch.equal(self.last if now is None else now, self.first)

    def have_same_inputs(self) -> bool:
        """Did a tensor enter both, the source with gradients on?"""
        return not self.entered[0].isdisjoint(self.entered[1])

    def _now(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        source, shadow = self.source.values(), self.shadow.values()
        return None if source is None or shadow is None or source.shape != shadow.shape else (source, shadow)

    def _share_memory(self) -> bool:
        return _addresses(self.source) == _addresses(self.shadow) != []


class ShadowNetworks(Observer):
    """Finds networks of equal structure, one of which is trained, and compares their weights around updates."""

    after = (Forwards, Gradients)
    stays = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._pairs: list[_Pair] = []
        self._aliases: dict[int, Shadow] = {}
        """By the id of the first parameter."""
        self._known: dict[int, list[_Pair]] = {}
        """The pairs that a module belongs to, by its id."""
        self._read: set[tuple[int, int]] = set()
        self._all_seen, self._loaded = True, False

    def __enter__(self) -> ShadowNetworks:
        self.follow(nn.Module, "state_dict", before=self._taken)
        for pair in self._pairs:
            pair.after = None  # what happened since the last step that was watched is not known
        return self

    def update_begins(self, optimizer: Optimizer) -> None:
        if self.scene.bus.resting:
            self._all_seen = False
        elif self.scene.updates in _SEARCHED:
            with aside():
                self._search()
        for pair in self._pairs:
            pair.begins()

    def update_ends(self, optimizer: Optimizer) -> None:
        if self.scene.updates < _CLOSELY or self.scene.updates % _THEN_EVERY == 0:
            for pair in self._pairs:
                pair.ends()
            return
        self._all_seen = False
        for pair in self._pairs:
            pair.after = None

    def module_called(self, module: nn.Module, args: Args, output: object) -> None:
        """Notes calls of both networks, and whose values an evaluation uses."""
        known = self._known.get(id(module))
        evaluated = not torch.is_grad_enabled() and bool(self._pairs) and len(self.scene.phases.running()) == 1
        if (known is None and not evaluated) or self.scene.phases.recomputing():
            return
        for pair in known or ():
            is_shadow = pair.shadow.module() is module
            if (is_shadow or torch.is_grad_enabled()) and len(pair.entered[is_shadow]) < _MOST_READ:
                pair.entered[is_shadow].update(_prints(args))
            if is_shadow:
                pair.called = True
                if pair.apart:
                    pair.calls.add(self.scene.updates)
                self._look_at_statistics(pair, module)
        place = id(module), self.scene.updates
        if not torch.is_grad_enabled() and place not in self._read and len(self._read) < _MOST_READ:
            self._read.add(place)
            self._evaluated(module)

    def _evaluated(self, module: nn.Module) -> None:
        """Compares the values of an evaluated module with those of both networks."""
        for pair in self._pairs:
            own = Network("", lambda: module, pair.source.chosen)
            if pair.after is not None and (values := own.values()) is not None:
                source, shadow = pair.after
                if values.shape == shadow.shape and not torch.equal(source, shadow):
                    now = pair.shadow.values()
                    if torch.equal(values, shadow if now is None else now):
                        pair.used = True
                        pair.calls.add(self.scene.updates)
                    pair.raw += torch.equal(values, source)

    def _look_at_statistics(self, pair: _Pair, shadow: nn.Module) -> None:
        """An average that is evaluated with the initial statistics, while those of the source have moved."""
        source = pair.source.module()
        if not pair.statistics or pair.stale or shadow.training or source is None or pair.keeps():
            return
        own, others = shadow.get_submodule(pair.statistics), source.get_submodule(pair.statistics)
        if _is_initial(own) and not _is_initial(others):
            pair.stale = pair.statistics

    def _taken(self, module: nn.Module, *_: object, **__: object) -> None:
        """Whoever takes the state of a shadow updates it, saves it or loads it into another network."""
        for pair in self._known.get(id(module), ()):
            pair.taken += pair.shadow.module() is module

    def file_loaded(self, contents: Contents) -> None:
        self._loaded = True

    def saving(self, contents: Contents, file: object) -> None:
        for pair in self._pairs:
            prints = [set(fingerprints(filter(readable, each.tensors()))) for each in (pair.source, pair.shadow)]
            saved = [bool(each) and each <= contents.prints for each in prints]
            pair.used |= saved[1]
            pair.raw += saved[0] and not saved[1] and bool(pair.apart)

    def _search(self) -> None:
        """Finds pairs among the models that ran and the networks that variables hold."""
        optimized = self.scene.optimized()
        trained = {p for p in self.scene.reached if p in optimized and p.requires_grad}
        held = list(in_sight())
        modules = {id(model): _Named(model, "", []) for model in self.scene.phases.models}
        for each in held:
            if isinstance(each.value, nn.Module):
                known = modules.setdefault(id(each.value), _Named(each.value, each.name, []))
                known.name = known.name or each.name
                known.names.append((each.scope, each.name))
        self._find_names(modules.values(), trained)
        tables = [each for each in held if not isinstance(each.value, nn.Module)]
        by_structure: dict[Shape, list[_Named]] = {}
        for one in _inside(modules.values()):
            if shape := structure(one.module):
                by_structure.setdefault(shape, []).append(one)
        for shape, alike in sorted(by_structure.items(), key=lambda item: -len(item[0])):
            self._search_among(alike, shape, tables, trained)

    def _search_among(
        self, alike: list[_Named], shape: Shape, tables: list[Sighting], trained: set[torch.Tensor]
    ) -> None:
        """Finds pairs of one structure. Parts of a shadow that is known are not looked at."""
        learning = [each for each in alike if not trained.isdisjoint(each.module.parameters())]
        self._find_aliases(learning)
        sources = [each for each in learning if not each.network(()).follows(may_stay=False)] or learning
        if not sources:
            return
        known = {id(p) for pair in self._pairs if (module := pair.shadow.module()) for p in module.parameters()}
        for each in alike:
            own = {id(p) for p in each.module.parameters()}
            joined = any(_are_same(each.module, one.module) for one in sources)
            near = [one for one in sources if each.whole or one.root == each.root]
            if near and not joined and own.isdisjoint(known):
                self._pair(each.network(()), near, shape, trained)
                known |= own
        names = {pair.shadow.name for pair in self._pairs}
        for table in tables:
            if table.name not in names and has_structure(table.value, shape):
                self._pair(Network(table.name, table.read, (), {table.name}), sources, shape, trained)

    def _pair(self, shadow: Network, sources: list[_Named], shape: Shape, trained: set[torch.Tensor]) -> None:
        """Pairs a shadow with the source of the same values, or with the first."""
        made = [pair for each in sources[:8] if (pair := self._paired(shadow, each, shape, trained)) is not None]
        for pair in sorted(made, key=lambda pair: not pair.copied)[:1] if len(self._pairs) < _MOST_PAIRS else ():
            self._pairs.append(pair)
            for network in (pair.source, pair.shadow):
                if (module := network.module()) is not None:
                    self._known.setdefault(id(module), []).append(pair)

    def _paired(self, shadow: Network, named: _Named, shape: Shape, trained: set[torch.Tensor]) -> _Pair | None:
        own, read = dict(named.module.named_parameters()), shadow.read()
        learned = chosen_of(tuple(one for one in shape if own[one[0]] in trained))
        source = named.network(learned)
        places = {name: place for place, (name, *_) in enumerate(shape)}
        keys = tuple(places[name] for name in learned) if isinstance(read, list) else learned
        shadow = Network(shadow.name, shadow.read, keys, shadow.names)
        values, others = source.values(), shadow.values()
        if values is None or others is None or len(values) != len(others):
            return None
        pair = _Pair(shadow, source, self.scene.updates, torch.equal(values, others), others, others)
        pair.aliased = _addresses(source) == _addresses(shadow)
        pair.trained = (module := shadow.module()) is not None and not trained.isdisjoint(module.parameters())
        pair.statistics = _first_statistics(shadow.module())
        return pair

    def _find_aliases(self, alike: list[_Named]) -> None:
        """Two trained modules with the same parameters, of which one is named as a copy."""
        for each in alike[:_MOST_PAIRS]:
            others = [one for one in alike[:_MOST_PAIRS] if one is not each and _are_same(each.module, one.module)]
            if others and each.network(()).follows(may_stay=False) and not is_shadow_name(others[0].name):
                self._note_alias(each.module, each.name, others[0].name)

    def _find_names(self, modules: Iterable[_Named], trained: set[torch.Tensor]) -> None:
        """A trained module that has two names in one place, of which one is that of a copy."""
        for module, names in _all_names(modules):
            for scope, name in names if any(is_shadow_name(each) for _, each in names) else ():
                beside = _beside(scope, name, names)
                meant = not beside or not Network(name, lambda: None, (), {name, *beside}).follows(may_stay=False)
                if not meant and structure(module) and not trained.isdisjoint(module.parameters()):
                    self._note_alias(module, name, beside[0])

    def _note_alias(self, module: nn.Module, shadow: str, source: str) -> None:
        key = next(id(each) for each in module.parameters())
        self._aliases.setdefault(key, Shadow(shadow, source, aliased=True, follows=True))

    def facts(self) -> Iterator[ModelFacts]:
        yield ModelFacts(shadows=tuple(self._shadows()))

    def _shadows(self) -> Iterator[Shadow]:
        yield from self._aliases.values()
        for pair in self._pairs:
            pair.begins()
            yield Shadow(
                pair.shadow.name or self._model_name(pair.shadow),
                pair.source.name or self._model_name(pair.source),
                aliased=pair.aliased,
                trained=pair.trained,
                follows=self._follows(pair),
                copied=pair.copied,
                same_inputs=pair.have_same_inputs(),
                apart=pair.apart,
                never_changed=pair.keeps() and not pair.shares and not pair.elsewhere,
                shares=tuple(pair.shares),
                elsewhere=pair.elsewhere,
                pulls=pair.pulls,
                calls=len(pair.calls),
                used=pair.called or pair.used or not self._all_seen,
                raw=pair.raw,
                stale_statistics=pair.stale,
            )

    def _follows(self, pair: _Pair) -> bool:
        """Do the names say that one follows the other? Not if they are those of a source and a target domain."""
        if pair.copied and are_key_and_query(pair.shadow.name, pair.source.name):
            return True
        both = Network("", pair.shadow.read, (), pair.shadow.names | pair.source.names)
        may_stay = self._loaded or bool(pair.born) or pair.have_same_inputs()
        return pair.shadow.follows(may_stay=may_stay) and both.follows(may_stay=may_stay)

    def _model_name(self, network: Network) -> str:
        module = network.module()
        return "a network" if module is None else self.scene.name(module)


@dataclass(eq=False)
class _Named:
    """A module, the path to it from a variable, and the variables that hold it directly."""

    module: nn.Module
    name: str
    names: list[tuple[int, str]]
    """Each with its scope."""
    root: int = 0
    """The id of the module that a variable holds."""
    whole: bool = True
    """It has all parameters of that module."""

    def network(self, chosen: tuple[str, ...]) -> Network:
        return Network(self.name, weakref.ref(self.module), chosen, {self.name, *(name for _, name in self.names)})


def _inside(outer: Iterable[_Named]) -> Iterator[_Named]:
    """These modules and those inside, each once, with the longest path to it."""
    seen: set[int] = set()
    for each in sorted(outer, key=lambda named: not named.name):
        size = _size(each.module)
        for path, module in each.module.named_modules():
            if id(module) not in seen and len(seen) < _MOST_MODULES:
                seen.add(id(module))
                name = f"{each.name}.{path}".rstrip(".")
                yield _Named(module, name, each.names if not path else [], id(each.module), _size(module) == size)


def _size(module: nn.Module) -> int:
    return sum(1 for _ in module.parameters())


def _all_names(outer: Iterable[_Named]) -> Iterator[tuple[nn.Module, list[tuple[int, str]]]]:
    """These modules and those inside, with every name that a variable or a module has for them."""
    found: dict[int, tuple[nn.Module, list[tuple[int, str]]]] = {}
    for each in outer:
        found.setdefault(id(each.module), (each.module, []))[1].extend(each.names)
        for scope, name in each.names[:1]:
            for path, module in islice(each.module.named_modules(remove_duplicate=False), 1, _MOST_MODULES):
                found.setdefault(id(module), (module, []))[1].append((scope, f"{name}.{path}"))
    yield from found.values()


def _beside(scope: int, name: str, names: list[tuple[int, str]]) -> list[str]:
    """The names without the words of a copy in the same place as a name with them: `online` beside `target`."""
    place = scope, name.rpartition(".")[0]
    others = [other for where, other in names if (where, other.rpartition(".")[0]) == place]
    return [other for other in others if not is_shadow_name(other)] if is_shadow_name(name) else []


def _share(before: torch.Tensor, after: torch.Tensor, towards: torch.Tensor) -> float | None:
    """How far a change leads from `before` to `towards`; None if it leads elsewhere."""
    way, change = towards - before, after - before
    length = float(way.square().sum())
    if not length:
        return None
    share = float((way * change).sum()) / length
    off = float((change - share * way).norm())
    return share if off <= _OFF_LINE * float(change.norm()) else None


def _addresses(network: Network) -> list[int]:
    with aside():
        return [each.data_ptr() for each in network.tensors() if readable(each)]


def _are_same(one: nn.Module, other: nn.Module) -> bool:
    return all(a is b for a, b in zip(one.parameters(), other.parameters(), strict=True))


def _prints(args: Args) -> Iterator[int]:
    """Hashes of the first tensor that entered a module."""
    yield from (fingerprint(each, _INPUTS) for each in args[:1] if readable(each))


def _first_statistics(module: nn.Module | None) -> str:
    """The first BatchNorm layer of a module, if its statistics are the initial ones."""
    for name, each in module.named_modules() if module is not None else ():
        if is_batch_norm(each) and each.track_running_stats:
            return name if _is_initial(each) else ""
    return ""


def _is_initial(norm: Any) -> bool:
    mean, variance = norm.running_mean, norm.running_var
    with aside():
        return readable(mean) and not bool(mean.any()) and bool((variance == 1).all())
