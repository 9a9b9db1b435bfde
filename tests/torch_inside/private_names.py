"""Reads source for private names of torch, and for assignments that replace a part of torch."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import nn

OTHERS = {
    "os": {"_exit"},  # documented: https://docs.python.org/3/library/os.html#os._exit
    "sys": {"_getframe", "_current_frames"},  # documented, as CPython's
}
TUPLES = {"_replace", "_fields", "_asdict"}  # documented: namedtuple
LIBRARIES = {
    "_strip_protocol",  # fsspec, for those who write file systems
    "_name_or_path",  # transformers' configurations
    "_attn_implementation",
    "_supports_attention_backend",  # transformers' models
    "_tied_weights_keys",
    "_keep_in_fp32_modules",
    "_precomputed_scale",  # torchao's weights of sharded FP8 layers
    "_model_mapping",  # transformers' Auto classes
}
_layer = nn.Linear(1, 1)
TORCHS = {
    name
    for owner in (_layer, _layer.weight, torch.optim.SGD([_layer.weight]), torch.UntypedStorage)
    for name in dir(owner)
    if name.startswith("_") and not name.startswith("__")
}
"""Private attributes of modules, tensors, optimizers and storages."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def own_names(tree: ast.AST) -> set[str]:
    """Private attributes that this source defines: methods, and attributes that it assigns on self or in a class."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _root(node) in ("self", "cls"):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return {name for name in found if is_private(name)}


def private_uses(source: str, known: Iterable[str] = ()) -> Iterator[str]:
    """Every use of a private name of torch in a source; `known` are private names that other files define."""
    tree = ast.parse(source)
    here, everywhere, torchs = own_names(tree), {*own_names(tree), *known}, _from_torch(tree)
    for node in ast.walk(tree):
        for name in _imported(node):
            if any(map(is_private, name.split("."))):
                yield f"{node.lineno}: imports {name}"
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if not _is_allowed(node.attr, node.value, here, everywhere):
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif (name := _asked(node)) is not None and not _is_allowed(name, node.args[0], here, everywhere):
            yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_private_path(node.value):
            yield f"{node.lineno}: {node.value!r}"
        for target in _assigned(node):
            if _root(target) in torchs:
                yield f"{node.lineno}: {ast.unparse(target)} is assigned; use surefoot.torch_inside.patches"


def _is_allowed(name: str, of: ast.expr, here: set[str], everywhere: set[str]) -> bool:
    if not is_private(name) or name in TUPLES or name in LIBRARIES or name in OTHERS.get(ast.unparse(of), ()):
        return True
    if isinstance(of, ast.Name) and of.id in ("self", "cls"):
        return name in everywhere
    return name in here and name not in TORCHS


def _from_torch(tree: ast.AST) -> set[str]:
    """Names that stand for modules of torch, or for what was imported from them."""
    return {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (node.module if isinstance(node, ast.ImportFrom) else alias.name or "").partition(".")[0] == "torch"
    }


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.partition(".")[0] == "torch"]
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _asked(node: ast.AST) -> str | None:
    """The name in `getattr(x, "name")`, `hasattr`, `setattr` and `delattr`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1):
        return None
    if node.func.id not in ("getattr", "hasattr", "setattr", "delattr") or not isinstance(node.args[1], ast.Constant):
        return None
    return str(node.args[1].value)


def _assigned(node: ast.AST) -> list[ast.expr]:
    """The attributes that a statement sets or deletes, also by `setattr`, plain or handed to an ExitStack."""
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call):
        words = [node.func, *node.args]
        at = next((n for n, word in enumerate(words) if ast.unparse(word) in ("setattr", "delattr")), len(words))
        return words[at + 1 : at + 2]
    else:
        return []
    flat = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [each for each in flat if isinstance(each, ast.Attribute)]


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_private_path(text: str) -> bool:
    parts = text.split(".")
    return parts[0] == "torch" and all(part.isidentifier() for part in parts) and any(map(is_private, parts))


def all_uses(package: Path, door: str) -> list[str]:
    """Every use of a private name of torch in a package, outside of the one folder."""
    files = [file for file in sorted(package.rglob("*.py")) if file.relative_to(package).parts[0] != door]
    sources = {file: file.read_text(encoding="utf-8") for file in files}
    known = set().union(*(own_names(ast.parse(source)) for source in sources.values()))
    return [
        f"{file.relative_to(package)}:{use}" for file, source in sources.items() for use in private_uses(source, known)
    ]
