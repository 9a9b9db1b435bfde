"""Finds what a script makes and never uses, of the kinds of things that have no use other than being used."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from surefoot.source.liveness import Store, dead_stores, scopes_of
from surefoot.source.loop_body import name_of_call
from surefoot.source.parsing import parsed
from surefoot.source.scopes import own_nodes

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SPLITS = ("random_split", "train_test_split")
_MASKS = ("tril", "triu", "generate_square_subsequent_mask", "create_causal_mask", "key_padding_mask")
_ORDERS = ("randperm", "permutation", "argsort")
_GENERATORS = ("Generator", "default_rng", "RandomState")
_LOSSES = ("_loss", "cross_entropy", "kl_div", "binary_cross_entropy", "with_logits", "mse", "nll")
_WITHOUT_GRADIENTS = ("no_grad", "inference_mode")
_SAME = (
    *("to", "bool", "float", "long", "int", "double", "half", "unsqueeze", "view", "reshape", "expand", "cuda", "cpu"),
    *("manual_seed", "contiguous", "squeeze", "type", "clone", "detach", "logical_not"),
)
"""Methods that leave what something is."""
_MASK_WORDS = {"mask", "masks", "masked", "padding"}
_SEQUENCES = ("append", "add", "extend", "update", "insert", "appendleft")
_EXPORTED = "__all__"


@dataclass(frozen=True)
class Unused:
    """Something that nothing uses: what it is, its name, and its place in the source."""

    kind: str
    name: str
    file: str
    line: int
    overwritten: bool = False


def never_used(file: str) -> tuple[Unused, ...]:
    """What a script makes and never uses, in the order of the source; nothing if it cannot be read."""
    tree = parsed(file)
    if tree is None or any(isinstance(each, ast.Name) and each.id == _EXPORTED for each in ast.walk(tree)):
        return ()
    try:
        return tuple(sorted(_Script(tree, file).unused(), key=lambda each: each.line))
    except RecursionError:
        return ()


class _Script:
    """One file, and what it names anywhere."""

    def __init__(self, tree: ast.Module, file: str) -> None:
        self.tree, self.file = tree, file
        self.nodes = list(ast.walk(tree))

    @cached_property
    def words(self) -> Counter[str]:
        """Every name that is read, attribute that is named and string that is written, however often."""
        found: Counter[str] = Counter()
        for each in self.nodes:
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
                found[each.id] += 1
            elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load):
                found[each.attr] += 1
            elif isinstance(each, ast.Constant) and isinstance(each.value, str):
                found[each.value] += 1
        return found

    @cached_property
    def assigned(self) -> dict[str, list[tuple[ast.Assign, ast.Name]]]:
        """By name: the assignments to it, and the name in each."""
        found: dict[str, list[tuple[ast.Assign, ast.Name]]] = {}
        for each in self.nodes:
            if isinstance(each, ast.Assign) and len(each.targets) == 1:
                for target in ast.walk(each.targets[0]):
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append((each, target))
        return found

    @cached_property
    def named(self) -> dict[str, list[ast.Name]]:
        """Every use of a name, by name."""
        found: dict[str, list[ast.Name]] = {}
        for each in self.nodes:
            if isinstance(each, ast.Name):
                found.setdefault(each.id, []).append(each)
        return found

    @cached_property
    def calls(self) -> dict[str, list[ast.Call]]:
        """Every call, by the name of what is called."""
        found: dict[str, list[ast.Call]] = {}
        for each in self.nodes:
            if isinstance(each, ast.Call):
                found.setdefault(name_of_call(each), []).append(each)
        return found

    @cached_property
    def keywords(self) -> set[str]:
        """The names of all arguments that calls name."""
        return {each.arg for each in self.nodes if isinstance(each, ast.keyword) and each.arg}

    @cached_property
    def functions(self) -> dict[str, Function]:
        return {each.name: each for each in self.nodes if isinstance(each, Function)}

    @cached_property
    def data_classes(self) -> set[str]:
        """Classes of the script whose instances are data sets."""
        owners = (each for each in self.nodes if isinstance(each, ast.ClassDef))
        return {each.name for each in owners if any(ast.unparse(base).endswith("Dataset") for base in each.bases)}

    def unused(self) -> Iterator[Unused]:
        for scope in scopes_of(self.tree):
            dead = dead_stores(scope)
            for store in dead:
                if kind := self.kind_of_store(store, scope, dead):
                    yield Unused(kind, store.name.id, self.file, store.name.lineno, store.overwritten)
            yield from self.only_filled(scope)
        yield from self.attributes()
        yield from self.never_called()
        yield from self.arguments()
        yield from self.keys()

    # ------------------------------------------------------------------------------------------------ assignments

    def kind_of_store(self, store: Store, scope: ast.AST, dead: list[Store]) -> str:
        """What a dead value is; empty if it is nothing worth saying."""
        name, statement = store.name.id, store.statement
        if name.startswith("_") or not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            return ""
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        value, part = _value_for(target, statement.value, store.name)
        if store.overwritten:
            return self._overwritten(store, scope, value, part=part)
        if part:
            split = isinstance(value, ast.Call) and name_of_call(value) in _SPLITS
            return "part of the data" if split and not _all_dead(target, dead) else ""
        if isinstance(scope, Function) and scope.name == "forward" and _is_of_self(value):
            return "output of a layer"
        return self.kind(value, name)

    def _overwritten(self, store: Store, scope: ast.AST, value: ast.expr, *, part: bool) -> str:
        """A state that is kept for the next iteration, which begins anew, and a value that is made again at once."""
        name = store.name.id
        loops = [each for each in own_nodes(scope) if isinstance(each, ast.For | ast.While)]
        around = [each for each in loops if each.lineno < store.name.lineno <= (each.end_lineno or 0)]
        carried = name in {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
        if around and carried and isinstance(value, ast.Call) and not part:
            inner = max(around, key=lambda each: each.lineno)
            again = [
                each for each in inner.body if isinstance(each, ast.Assign) and _names_in(each.targets[0]) == [name]
            ]
            if again and again[0].lineno < store.name.lineno:
                return "state carried by the loop"
        kind = "" if part or carried else self.kind(value, name)
        return kind if kind in ("mask", "loss term") else ""

    def kind(self, value: ast.expr, name: str) -> str:
        """What an expression makes, by how it makes it."""
        value = _bare(value)
        called = name_of_call(value) if isinstance(value, ast.Call) else ""
        words = set(name.lower().strip("_").split("_"))
        if called.endswith("DataLoader"):
            return "loader"
        if called.endswith("Dataset") or called in ("Subset", *self.data_classes):
            return "data set"
        if called in _GENERATORS:
            return "generator"
        if called in _ORDERS and called != "argsort":
            return "order"
        if called.endswith(_LOSSES):
            return "loss term"
        if _copies_weights(value):
            return "copy of the weights"
        if isinstance(value, ast.Subscript) and self._is_held_out(value):
            return "part of the data"
        masks = called in _MASKS or (words & _MASK_WORDS and isinstance(value, ast.Compare | ast.Call | ast.BinOp))
        return "mask" if masks and "is_causal" not in self.keywords else ""  # else torch makes the mask itself

    def _is_held_out(self, value: ast.Subscript) -> bool:
        """Is this a slice whose other side is taken elsewhere: `x[800:]` beside `x[:800]`?"""
        cut = value.slice
        if not isinstance(cut, ast.Slice) or cut.step is not None or (cut.lower is None) == (cut.upper is None):
            return False
        whole, at = ast.unparse(value.value), ast.unparse(cut.lower or cut.upper or cut)
        other = f"{whole}[{at}:]" if cut.upper is not None else f"{whole}[:{at}]"
        return any(isinstance(each, ast.Subscript) and ast.unparse(each) == other for each in self.nodes)

    def only_filled(self, scope: ast.AST) -> Iterator[Unused]:
        """Sets that are filled and never asked, and tables of weights that are filled and never read."""
        for node in own_nodes(scope):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
                continue
            name, value = node.targets[0].id, node.value
            is_set = isinstance(value, ast.Call) and name_of_call(value) == "set" and not value.args
            is_table = isinstance(value, ast.Dict) or (isinstance(value, ast.Call) and name_of_call(value) == "dict")
            if name.startswith("_") or not (is_set or is_table):
                continue
            uses = [each for each in self.named.get(name, ()) if each is not node.targets[0]]
            fills = set(self._fills(name))
            if uses and fills and {each for each, _ in fills} >= set(uses):
                if is_set:
                    yield Unused("set of what was seen", name, self.file, node.lineno)
                elif any(_copies_weights(value) for _, value in fills):
                    yield Unused("copy of the weights", name, self.file, node.lineno)

    def _fills(self, name: str) -> Iterator[tuple[ast.Name, ast.expr]]:
        """Where something is put into what a name holds: the name, and what is put there."""
        for each in self.nodes:
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
                method = each.value.func
                held = method.value if isinstance(method, ast.Attribute) and method.attr in _SEQUENCES else None
                if isinstance(held, ast.Name) and held.id == name and each.value.args:
                    yield held, each.value.args[0]
            elif isinstance(each, ast.Assign):
                for target in each.targets:
                    if (
                        isinstance(target, ast.Subscript)
                        and isinstance(target.value, ast.Name)
                        and target.value.id == name
                    ):
                        yield target.value, each.value

    # ------------------------------------------------------------------------- attributes, functions, arguments, keys

    def attributes(self) -> Iterator[Unused]:
        """What is kept as an attribute that nothing names again."""
        for each in self.nodes:
            if isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Attribute):
                target = each.targets[0]
                kind = self.kind(each.value, target.attr)
                plain = isinstance(target.value, ast.Name) and target.value.id == "self"
                if plain and kind and not self.words[target.attr] and self._is_own_class(each):
                    yield Unused(kind, f"self.{target.attr}", self.file, each.lineno)
            elif isinstance(each, ast.Call) and name_of_call(each) == "register_buffer" and len(each.args) >= 2:
                named = each.args[0]
                name = named.value if isinstance(named, ast.Constant) and isinstance(named.value, str) else ""
                if self.words[name] == 1 and (kind := self.kind(each.args[1], name)):
                    yield Unused(kind, f"self.{name}", self.file, each.lineno)

    def _is_own_class(self, node: ast.AST) -> bool:
        """Is this in a class of which no library reads attributes?"""
        owners = [each for each in self.nodes if isinstance(each, ast.ClassDef) and node in ast.walk(each)]
        return all(
            ast.unparse(base) in ("nn.Module", "torch.nn.Module", "Module", "object")
            or ast.unparse(base).endswith("Dataset")
            for owner in owners
            for base in owner.bases
        )

    def never_called(self) -> Iterator[Unused]:
        """Functions that evaluate, which nothing names."""
        owners = (each for each in self.nodes if isinstance(each, ast.ClassDef) and each.bases)
        hooks = {part for owner in owners for part in owner.body}  # a library may call them by their names
        for each in (each for each in self.nodes if isinstance(each, Function)):
            alone = each not in hooks and not self.words[each.name]
            if alone and not each.name.startswith("_") and _evaluates(each):
                yield Unused("function that evaluates", each.name, self.file, each.lineno)

    def arguments(self) -> Iterator[Unused]:
        """Arguments that a function of the script is given and never reads."""
        own = Counter(each.name for each in self.nodes if isinstance(each, Function))
        for function in self.functions.values():
            calls = [each for each in self.calls.get(function.name, ()) if _is_name(each.func, function.name)]
            if not calls or own[function.name] > 1 or self.words[function.name] != len(calls) or _is_stub(function):
                continue
            read = {each.id for part in function.body for each in ast.walk(part) if isinstance(each, ast.Name)}
            if read & {"locals", "vars"}:
                continue
            for place, argument in enumerate(function.args.args):
                given = [_given(call, place, argument.arg) for call in calls]
                if argument.arg in read or argument.arg.startswith("_") or None in given:
                    continue
                kinds = {self.kind_of_name(each) for each in given if each is not None}
                if (
                    len(kinds) == 1 and (kind := kinds.pop()) and kind != "generator"
                ):  # an order may be fixed on purpose
                    yield Unused(f"{kind} that `{function.name}` is given", argument.arg, self.file, argument.lineno)

    def kind_of_name(self, node: ast.expr) -> str:
        """What an argument is: by what was assigned to the name, if that is one thing."""
        if not isinstance(node, ast.Name):
            return self.kind(node, "")
        values = (_value_for(each.targets[0], each.value, target) for each, target in self.assigned.get(node.id, ()))
        kinds = {"" if part else self.kind(value, node.id) for value, part in values}
        return kinds.pop() if len(kinds) == 1 else ""

    def keys(self) -> Iterator[Unused]:
        """Masks and weights of samples under a key that nothing names again."""
        if any(isinstance(each, ast.Call) and any(word.arg is None for word in each.keywords) for each in self.nodes):
            return  # `model(**batch)`
        if any(isinstance(each, ast.Call) and name_of_call(each).endswith("Trainer") for each in self.nodes):
            return  # it hands them to the model by their names
        if any(name_of_call(each) in ("items", "values") for each in self.nodes if isinstance(each, ast.Call)):
            return
        for function in self.nodes:
            if isinstance(function, Function):
                returned = (each.value for each in own_nodes(function) if isinstance(each, ast.Return))
                for table in (each for each in returned if isinstance(each, ast.Dict)):
                    for key, value in zip(table.keys, table.values, strict=True):
                        if isinstance(key, ast.Constant) and isinstance(key.value, str) and self.words[key.value] == 1:
                            kind = self.kind_of_name(value) or self.kind(value, key.value)
                            if kind in ("mask", "loss term"):
                                yield Unused(kind, key.value, self.file, key.lineno)


# ----------------------------------------------------------------------------------------------- parts of the source


def _value_for(target: ast.expr, value: ast.expr, name: ast.Name) -> tuple[ast.expr, bool]:
    """The expression that a name of a target gets; and whether that is one part of what it gives."""
    if isinstance(target, ast.Tuple | ast.List):
        place = next((n for n, each in enumerate(target.elts) if name in ast.walk(each)), 0)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            return _value_for(target.elts[place], value.elts[place], name)
        return value, True
    return value, False


def _all_dead(target: ast.expr, dead: list[Store]) -> bool:
    unread = {store.name for store in dead}
    return all(each in unread for each in ast.walk(target) if isinstance(each, ast.Name))


def _bare(value: ast.expr) -> ast.expr:
    """An expression without conversions, added dimensions and signs."""
    while True:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SAME:
            value = value.func.value
        elif isinstance(value, ast.UnaryOp):
            value = value.operand
        elif isinstance(value, ast.Subscript) and "None" in ast.unparse(value.slice):
            value = value.value
        else:
            return value


def _copies_weights(value: ast.expr) -> bool:
    """Is this made of a `state_dict()`?"""
    calls = (each for each in ast.walk(value) if isinstance(each, ast.Call))
    outer = name_of_call(value) if isinstance(value, ast.Call) else ""
    plain = isinstance(value, ast.DictComp) or outer in (
        "deepcopy",
        "state_dict",
        "dict",
        "OrderedDict",
        "copy",
        "clone",
    )
    return plain and any(name_of_call(each) == "state_dict" for each in calls)


def _names_in(target: ast.expr) -> list[str]:
    return [each.id for each in ast.walk(target) if isinstance(each, ast.Name)]


def _is_of_self(value: ast.expr) -> bool:
    """Is this the output of a layer: `self.layer(...)`?"""
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and isinstance(value.func.value, ast.Name)
        and value.func.value.id == "self"
    )


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _evaluates(function: Function) -> bool:
    """Does a function run a model without gradients, or put it into evaluation mode?"""
    guards = chain(
        function.decorator_list,
        (item.context_expr for each in ast.walk(function) if isinstance(each, ast.With) for item in each.items),
    )
    quiet = any(any(word in ast.unparse(each) for word in _WITHOUT_GRADIENTS) for each in guards)
    others = [
        each for each in function.decorator_list if not any(word in ast.unparse(each) for word in _WITHOUT_GRADIENTS)
    ]
    gives = any(isinstance(each, ast.Return) and each.value is not None for each in ast.walk(function))
    modes = any(
        isinstance(each, ast.Call) and name_of_call(each) == "eval" and not each.args for each in ast.walk(function)
    )
    return (quiet or modes) and gives and not others


def _is_stub(function: Function) -> bool:
    return len(function.body) == 1 and isinstance(function.body[0], ast.Pass | ast.Raise | ast.Expr)


def _given(call: ast.Call, place: int, name: str) -> ast.expr | None:
    """What a call passes for an argument; None if it passes nothing, or nothing that can be told."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return call.args[place] if not starred and place < len(call.args) else None
