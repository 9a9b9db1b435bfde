"""What `torch.cuda`, `torch.accelerator`, autocast and generators answer for a card that is not there."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from surefoot.source.owners import owner
from surefoot.torch_inside.card import AnyGenerator, autocast_as_cpu, replaced, started
from surefoot.world.card.typed import TYPES

if TYPE_CHECKING:
    from surefoot.world.card.placement import Placement

_DO_NOTHING = (
    "init", "synchronize", "empty_cache", "set_device", "set_stream", "reset_peak_memory_stats", "seed", "seed_all",
    "reset_max_memory_allocated", "reset_accumulated_memory_stats", "set_per_process_memory_fraction", "manual_seed",
    "manual_seed_all", "ipc_collect", "set_rng_state", "set_rng_state_all",
)  # fmt: skip
_MULTIPROCESSORS = {(7, 0): 80, (7, 5): 40, (8, 0): 108, (8, 6): 84, (8, 9): 128, (9, 0): 132, (10, 0): 148}


@contextmanager
def answers(card: Placement) -> Iterator[None]:
    """A context in which torch answers as with such a card."""
    with ExitStack() as entered:
        entered.enter_context(started(lambda: card.ranks))
        cuda = _apart(_of_cuda(card))
        entered.enter_context(replaced(torch.cuda, cuda))
        for part in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
            entered.enter_context(replaced(part, {name: cuda[name] for name in cuda if name in vars(part)}))
        entered.enter_context(replaced(torch.accelerator, _apart(_of_accelerator(card, cuda))))
        entered.enter_context(replaced(torch, {"Generator": AnyGenerator}))
        # libraries ask for it beside the card, and compare what torch was built with
        entered.enter_context(replaced(torch.version, {"cuda": torch.version.cuda or "12.8"}))
        # what a distribution is given is not known, and so not found wrong
        entered.enter_context(replaced(torch.distributions.Distribution, {"_validate_args": False}))
        # replaced, not heard: streams are no operands that torch knows, and a loader pins in a thread of its own
        entered.enter_context(replaced(torch.Tensor, {"record_stream": _nothing, "pin_memory": lambda each, *_: each}))
        entered.enter_context(autocast_as_cpu())
        yield


def _apart(answers: dict[str, Any]) -> dict[str, Any]:
    """The same answers, each a function of its own: the compiler has a rule for each function of torch, by identity."""
    return {
        name: FunctionType(each.__code__, each.__globals__, name, each.__defaults__, each.__closure__)
        if isinstance(each, FunctionType)
        else each
        for name, each in answers.items()
    }


def _of_cuda(card: Placement) -> dict[str, Any]:
    total = card.gpu.memory_bytes if card.gpu is not None else 80 << 30
    capability = card.gpu.capability if card.gpu is not None else (9, 0)
    architecture = card.gpu.architecture if card.gpu is not None else ""
    name = card.gpu.name if card.gpu is not None else "cpu"
    properties = SimpleNamespace(
        name=name, total_memory=total, major=capability[0], minor=capability[1], warp_size=32, is_integrated=0,
        multi_processor_count=_MULTIPROCESSORS.get(capability, 108), gcnArchName=architecture, uuid="0",
        L2_cache_size=40 << 20,
        regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, shared_memory_per_block_optin=166912,
    )  # fmt: skip

    def now(*_: Any) -> int:
        return card.held_bytes()[0]

    def peak(*_: Any) -> int:
        return card.held_bytes()[1]

    def index(*_: Any) -> int:
        return card.device.index or 0

    stream = Timeless()
    return {
        **dict.fromkeys(_DO_NOTHING, _nothing),
        "is_available": _shown, "is_initialized": _shown,
        "device_count": lambda: card.ranks if _shown() else 0, "current_device": index,
        "memory_allocated": now, "memory_reserved": now, "max_memory_allocated": peak, "max_memory_reserved": peak,
        "memory_stats": lambda *_: _statistics(*card.held_bytes()), "mem_get_info": lambda *_: (total - now(), total),
        "memory_summary": lambda *_, **__: f"{now()} bytes now, {peak()} at the peak, of a card that is not there",
        "get_device_properties": lambda *_: properties, "get_device_name": lambda *_: name,
        "get_device_capability": lambda *_: capability, "get_arch_list": lambda: [f"sm_{capability[0]}{capability[1]}"],
        "is_bf16_supported": lambda *_, **__: capability >= (8, 0), "is_tf32_supported": lambda: capability >= (8, 0),
        "is_current_stream_capturing": lambda: False, "can_device_access_peer": lambda *_: True,
        "Event": Timeless, "Stream": Timeless, "StreamContext": Timeless, "device": Timeless, "device_of": Timeless,
        "stream": lambda given=None: given or stream, "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "get_rng_state": lambda *_: torch.get_rng_state(), "get_rng_state_all": lambda: [torch.get_rng_state()],
        "initial_seed": torch.initial_seed, **TYPES,
    }  # fmt: skip


def _of_accelerator(card: Placement, cuda: dict[str, Any]) -> dict[str, Any]:
    held = {name: cuda[name] for name in ("memory_allocated", "max_memory_allocated", "memory_reserved")}
    return {
        **held,
        "current_accelerator": lambda check_available=False: torch.device("cuda") if _shown() else None,
        "is_available": _shown,
        "device_count": cuda["device_count"],
        "current_device_index": cuda["current_device"],
        "set_device_index": _nothing,
        "synchronize": _nothing,
        "empty_cache": _nothing,
        "current_stream": cuda["current_stream"],
    }


def _shown() -> bool:
    """Is there a card? To a library that is being imported there is none: it would load its CUDA code."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and owner(file) != "surefoot":
            if owner(file) not in ("installed", "python"):
                return True
            if frame.f_code.co_name == "<module>":
                return False
        frame = frame.f_back  # type: ignore[assignment]
    return True


def _statistics(now: int, peak: int) -> defaultdict[str, int]:
    kinds = ("allocated_bytes", "reserved_bytes", "requested_bytes", "active_bytes")
    found = {f"{kind}.all.{when}": held for kind in kinds for when, held in (("current", now), ("peak", peak))}
    return defaultdict(int, found)


def _nothing(*_: Any, **__: Any) -> None:
    return None


class Timeless:
    """Streams, events and their contexts, where nothing runs."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device, self.cuda_stream, self.stream_id = torch.device("cuda", 0), 0, 0
        self.made = time.perf_counter()

    def __enter__(self) -> Timeless:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def query(self) -> bool:
        """Is all done?"""
        return True

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds from this event to another."""
        return 1.0

    def record_event(self, event: Any = None) -> Any:
        """An event on this stream."""
        return event or Timeless()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing
