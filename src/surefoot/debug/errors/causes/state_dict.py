"""A state that is loaded has other keys or shapes than the module."""

import re

from surefoot.records.explanation import Cause, Raised
from surefoot.units import counted, first_of

_MODULE = re.compile(r"Error\(s\) in loading state_dict for (\w+):")
_KEYS = {
    kind: re.compile(rf"{kind} key\(s\) in state_dict: (.*?)\. *$", re.MULTILINE) for kind in ("Missing", "Unexpected")
}
_SHAPES = re.compile(
    r"size mismatch for ([\w.]+): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from checkpoint, "
    r"the shape in current model is torch\.Size\(\[([\d, ]*)\]\)"
)
_WRAPPERS = {
    "module.": ("DataParallel or DistributedDataParallel", "model.module"),
    "_orig_mod.": ("torch.compile", "model._orig_mod"),
}
_MOST = 3


def cause(raised: Raised) -> Cause | None:
    found = _MODULE.search(raised.message)
    if found is None:
        return None
    module, places = found[1], (raised.place,) if raised.place is not None else ()
    missing, unexpected = (_keys(raised.message, kind) for kind in ("Missing", "Unexpected"))
    for prefix, (wrapper, inner) in _WRAPPERS.items():
        if _is_prefixed(missing, unexpected, prefix):
            said = f"All keys of the state begin with `{prefix}`: it was saved from a model wrapped by {wrapper}."
            remedy = (
                f"Save `{inner}.state_dict()`, or cut the prefix off: `{{key.removeprefix('{prefix}'): value ...}}`."
            )
            return Cause(said, remedy, places)
        if _is_prefixed(unexpected, missing, prefix):
            said = (
                f"All keys of {module} begin with `{prefix}`, and those of the state do not: {wrapper} wraps the model."
            )
            return Cause(said, f"Load it into `{inner}`, or before the model is wrapped.", places)
    parts = [
        *([f"{_are(missing, f'of {module}')} not in the state: {first_of(missing, _MOST)}."] if missing else []),
        *(
            [f"{_are(unexpected, 'of the state')} not in {module}: {first_of(unexpected, _MOST)}."]
            if unexpected
            else []
        ),
        *(
            f"{name}: ({saved}) in the state, ({now}) in {module}."
            for name, saved, now in _SHAPES.findall(raised.message)
        ),
    ]
    remedy = (
        "Make the model as it was when the state was saved. `strict=False` leaves layers without a key as they are."
    )
    return Cause(" ".join(parts[: _MOST + 2]), remedy, places) if parts else None


def _keys(message: str, kind: str) -> list[str]:
    found = _KEYS[kind].search(message)
    return re.findall(r'"([^"]+)"', found[1]) if found else []


def _is_prefixed(plain: list[str], wrapped: list[str], prefix: str) -> bool:
    """Whether all of one side begin with the prefix, and those of the other are among them without it.

    torch does not miss `num_batches_tracked`.
    """
    return (
        bool(plain) and all(key.startswith(prefix) for key in wrapped) and {prefix + key for key in plain} <= {*wrapped}
    )


def _are(keys: list[str], of: str) -> str:
    return f"{counted(len(keys), 'key')} {of} {'is' if len(keys) == 1 else 'are'}"
