"""Tensors on different devices meet."""

import re

from surefoot.debug.errors.words import of
from surefoot.records.explanation import Cause, Raised

_DEVICES = re.compile(r"is not on the expected device|same device|found at least two devices|different devices?")


def cause(raised: Raised) -> Cause | None:
    devices = list(dict.fromkeys(each.device for each in raised.tensors))
    if not _DEVICES.search(raised.message) or len(devices) < 2:
        return None
    groups = [[each for each in raised.tensors if each.device == device] for device in devices]
    fewest = min(groups, key=len)
    is_odd = sum(len(each) == len(fewest) for each in groups) == 1
    told = "; ".join(
        f"{', '.join(of(each) for each in group)} on {device}" for device, group in zip(devices, groups, strict=True)
    )
    names = " and ".join(f"`{each.name}`" for each in fewest)
    said = f"Tensors on {len(devices)} devices meet: {told}."
    remedy = f"Move {names} to the device of the others. " if is_odd else "Move all to one device. "
    remedy += "A tensor that is an attribute of a module moves with `model.to(device)` "
    remedy += "only if it is a parameter or was registered with `register_buffer`."
    return Cause(said, remedy, tuple(place for each in (fewest if is_odd else ()) for place in each.made[-1:]))
