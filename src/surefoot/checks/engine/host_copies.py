"""Copies values from an accelerator to the host, many at once: at each copy the host waits for all queued work."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch

from surefoot.torch_inside.autograd import writes
from surefoot.torch_inside.modes import aside

MOST_PACKED = 1 << 22
"""The most bytes that are packed into one buffer on the device. Larger tensors are copied alone, without a buffer."""
MOST_PUT_OFF = 1 << 16
"""The most elements that are kept on the device to be read later."""
_Memory = tuple[torch.device, int, torch.dtype, tuple[int, ...], tuple[int, ...]]


class HostCopies:
    """Reads tensors. Those on the host are read where they are, at no cost.

    A tensor that was read whole is not copied again before `forget`, unless autograd saw a write to it. A check that
    looks for writes that autograd does not see must use `fresh`.
    """

    def __init__(self) -> None:
        self._copies: dict[int, tuple[weakref.ref[torch.Tensor], int, torch.Tensor]] = {}
        self._in_moment = False
        self._moment: dict[_Memory, tuple[torch.Tensor, torch.Tensor]] = {}
        """What was read in this moment. It keeps the tensors alive, so that no other takes their place."""
        self._awaited: list[tuple[torch.Tensor, Callable[[torch.Tensor], object]]] = []

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The values of a tensor, on the host. Do not write to them."""
        with aside():
            return tensor.detach() if tensor.is_cpu else self.all_of((tensor,))[0]

    def all_of(self, tensors: Sequence[torch.Tensor], fresh: Sequence[torch.Tensor] = ()) -> list[torch.Tensor]:
        """The values of tensors on the host, and of others as they are now, after at most one wait for small ones."""
        with aside():
            known = [each.detach() if each.is_cpu else self._known(each) for each in tensors]
            missing = {id(each): each for each, copy in zip(tensors, known, strict=True) if copy is None}
            read = self.fresh([*missing.values(), *fresh])
            copies = dict(zip(missing, read, strict=False))
            for key, each in missing.items():
                self._keep(key, each, copies[key])
            found = [copies[id(each)] if copy is None else copy for each, copy in zip(tensors, known, strict=True)]
            return found + read[len(missing) :]

    def fresh(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The same, of the values as they are now. Also reads all that `later` put off."""
        with aside():
            if all(each.is_cpu for each in tensors):
                return [each.detach() for each in tensors]
            keys = [_memory(each) for each in tensors]
            new = {key: each.detach() for key, each in zip(keys, tensors, strict=True) if key not in self._moment}
            awaited, self._awaited = self._awaited, []
            found = _read([*new.values(), *(value for value, _ in awaited)])
            read = self._moment | {key: (each, copy) for (key, each), copy in zip(new.items(), found, strict=False)}
            for (_, use), value in zip(awaited, found[len(new) :], strict=True):
                use(value)
            self._moment = read if self._in_moment else {}
            return [read[key][1] for key in keys]

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Inside, nothing of the loop runs, so even `fresh` reads the same memory only once."""
        self._in_moment = True
        try:
            yield
        finally:
            self._in_moment, self._moment = False, {}

    def nearest(self, tensor: torch.Tensor) -> torch.Tensor:
        """The copy on the host if there is one, else the tensor itself."""
        with aside():
            copy = None if tensor.is_cpu else self._known(tensor)
            return tensor if copy is None else copy

    def kept(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy to be read later: on the host if it is there, on the device if it is small."""
        with aside():
            near = self.nearest(tensor)
            if near is not tensor:
                return near
            return tensor.detach().clone() if tensor.is_cpu or tensor.numel() <= MOST_PUT_OFF else self.of(tensor)

    def later(self, value: torch.Tensor, use: Callable[[torch.Tensor], object]) -> None:
        """Calls `use` with values on the host: now if they are there, else with the next read or `settle`."""
        with aside():
            if value.is_cpu or value.numel() > MOST_PUT_OFF:
                use(self.of(value))
            else:
                self._awaited.append((value.detach().clone(), use))

    def settle(self) -> None:
        """Reads all that was put off."""
        if self._awaited:
            self.fresh([self._awaited[0][0]])

    def forget(self) -> None:
        """Forgets all copies: the step is over."""
        self._copies.clear()

    def _known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        ref, written, copy = self._copies.get(id(tensor), (None, 0, None))
        return copy if ref is not None and ref() is tensor and written == writes(tensor) else None

    def _keep(self, key: int, tensor: torch.Tensor, copy: torch.Tensor) -> None:
        def gone(ref: weakref.ref[torch.Tensor]) -> None:
            if self._copies.get(key, (None,))[0] is ref:
                del self._copies[key]

        self._copies[key] = weakref.ref(tensor, gone), writes(tensor), copy


def _memory(tensor: torch.Tensor) -> _Memory:
    """Which memory a tensor shows, and how."""
    return tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def _read(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Copies tensors to the host: large and complex ones one by one, the others in buffers."""
    found: dict[int, torch.Tensor] = {}
    packs: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
    room: dict[torch.device, int] = {}
    for place, each in enumerate(tensors):
        size = each.numel() * each.element_size()
        if each.is_cpu or each.is_complex() or 2 * size > MOST_PACKED:
            found[place] = each.detach().cpu()
            continue
        if size > room.get(each.device, MOST_PACKED):
            found |= _unpacked(packs.pop(each.device))
            room.pop(each.device)
        packs.setdefault(each.device, []).append((place, each.detach()))
        room[each.device] = room.get(each.device, MOST_PACKED) - size
    for pack in packs.values():
        found |= _unpacked(pack)
    return [found[place] for place in sorted(found)]


def _unpacked(pack: list[tuple[int, torch.Tensor]]) -> dict[int, torch.Tensor]:
    """Copies the tensors of a device to the host at once, by their places."""
    if len(pack) == 1:
        return {place: each.cpu() for place, each in pack}
    try:
        return _from_buffer(pack)
    except torch.OutOfMemoryError:  # the device is full: one by one they need no buffer
        return {place: each.cpu() for place, each in pack}


def _from_buffer(pack: list[tuple[int, torch.Tensor]]) -> dict[int, torch.Tensor]:
    # wide numbers first: so each begins at a multiple of its size
    pack = sorted(pack, key=lambda item: (-item[1].element_size(), str(item[1].dtype)))
    kinds = dict.fromkeys(each.dtype for _, each in pack)
    flat = [torch.cat([each.reshape(-1) for _, each in pack if each.dtype == kind]) for kind in kinds]
    data = (torch.cat([each.view(torch.uint8) for each in flat]) if len(flat) > 1 else flat[0]).cpu().view(torch.uint8)
    found, at = {}, 0
    for place, each in pack:
        end = at + each.numel() * each.element_size()
        found[place], at = data[at:end].view(each.dtype).reshape(each.shape), end
    return found


HOST = HostCopies()
"""Shared by all checks, which look at the same tensors."""
