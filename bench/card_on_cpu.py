"""A card whose memory is this machine's: a script that asks for `cuda` really runs, and what it puts there is counted.

`card_on_cpu.cpp` counts. Here is what a script must be told: `cuda` exists, `.to("cuda")` copies, ranks talk by gloo.
Nothing of surefoot's planner is used. Libraries see no GPU, and take the CPU for their card.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import cpp_extension
from torch.utils._pytree import tree_map_only

SOURCE = Path(__file__).with_suffix(".cpp")
CARD, HOST = 1, 2
CPU = torch.device("cpu")
T = torch.Tensor


@functools.cache
def counter() -> ctypes.CDLL:
    """The counter, built once for each torch and each version of its source."""
    name = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    built = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "surefoot" / f"bench-{name}.so"
    built.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not built.exists():
        include = [f"-I{folder}" for folder in cpp_extension.include_paths()]
        link = [f"-L{folder}" for folder in cpp_extension.library_paths()]
        flags = [
            "-std=c++20",
            "-O1",
            "-fPIC",
            "-shared",
            "-DNDEBUG",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        ]
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            made = Path(folder) / built.name
            words = ["g++", *flags, *include, str(SOURCE), "-o", str(made), *link, "-ltorch_cpu", "-lc10"]
            subprocess.run(words, check=True)
            made.replace(built)
    library = ctypes.CDLL(str(built))
    for answer in ("card_peak", "card_live"):
        getattr(library, answer).restype = ctypes.c_int64
    for taker in ("card_holds", "card_take"):
        getattr(library, taker).argtypes = [ctypes.c_void_p]
    return library


@contextmanager
def marked(place: int) -> Iterator[None]:
    """A context in which everything is made on the card, or on the host."""
    before = counter().card_mark(place)
    try:
        yield
    finally:
        counter().card_mark(before)


def holds(tensor: T) -> bool:
    """Is a tensor on the card?"""
    if hasattr(tensor, "_local_tensor"):
        return holds(tensor._local_tensor)
    return tensor.layout is torch.strided and bool(counter().card_holds(tensor.untyped_storage().data_ptr()))


def moved(tensor: T, place: int = CARD, **how: Any) -> T:
    """A copy on the card or on the host; the tensor itself, if it is there."""
    if hasattr(tensor, "_local_tensor"):
        counter().card_take(tensor._local_tensor.untyped_storage().data_ptr())
        return tensor
    with marked(place):
        if holds(tensor) != (place == CARD):
            return tensor.to(CPU, copy=True, **{name: each for name, each in how.items() if name != "copy"})
    return tensor.to(CPU, **how) if how else tensor


class Named(TorchFunctionMode):
    """Sends what a script puts on `cuda` to the card, and what it asks back from there to the host."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def place(self, device: Any) -> int | None:
        """The place that a device names. `"cpu"` is the host to the script, and the card to libraries."""
        if isinstance(device, torch.device) or type(device) is int:
            return CARD
        if not isinstance(device, str):
            return None
        return HOST if device.startswith("cpu") and self.is_scripts() else CARD

    def is_scripts(self) -> bool:
        """Is it the script that calls, and not a library?"""
        return is_from(self.folder, sys._getframe(1))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is T.to:
            return self.sent(args, kwargs)
        if func is T.cuda:
            return moved(args[0])
        if func is T.cpu:
            return moved(args[0], HOST)
        if func is T.pin_memory:
            return args[0]
        if func is T.get_device:
            return 0 if holds(args[0]) else -1
        place = self.place(kwargs.get("device"))
        if place is None:
            return func(*args, **kwargs)
        with marked(place):
            return func(*args, **{**kwargs, "device": CPU})

    def sent(self, args: Any, kwargs: dict[str, Any]) -> T:
        """`Tensor.to`."""
        tensor, *rest = args
        kwargs.pop("non_blocking", None)
        place = self.place(kwargs.pop("device", None))
        for each in rest:
            if isinstance(each, torch.Tensor):
                place, kwargs["dtype"] = (CARD if holds(each) else HOST), each.dtype
            elif isinstance(each, torch.dtype):
                kwargs["dtype"] = each
            elif not isinstance(each, bool) and each is not None:
                place = self.place(each)
        kwargs = {name: each for name, each in kwargs.items() if each is not None}
        return tensor.to(**kwargs) if place is None else moved(tensor, place, **kwargs)


def is_from(folder: str, frame: Any) -> bool:
    """Whether the innermost frame outside of torch is of a folder."""
    while frame is not None:
        file = frame.f_code.co_filename
        if "/torch/" not in file and not file.startswith("<") and file not in (__file__, functools.__file__):
            return file.startswith(folder)
        frame = frame.f_back
    return False


# ------------------------------------------------------------------------------------------- what a script is told


def _nothing(*_: Any, **__: Any) -> None:
    return None


class Generator(torch._C.Generator):
    """A generator of the CPU, wherever it was asked to be."""

    def __new__(cls, *_: Any, **__: Any) -> Generator:
        return super().__new__(cls, "cpu")


class Timeless:
    """A stream, an event or the context of one, where nothing waits."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Timeless:
        return self

    def __exit__(self, *_: object) -> None: ...

    def elapsed_time(self, _: Any) -> float:
        return 1.0

    def query(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def cuda(folder: str, ranks: int) -> dict[str, Any]:
    """What `torch.cuda` answers: there is a card, to the script alone."""

    def shown(*_: Any, **__: Any) -> bool:
        return sys._getframe(1).f_code.co_filename.startswith(folder)

    about = SimpleNamespace(name="card", total_memory=80 << 30, major=9, minor=0, multi_processor_count=132)
    names = "synchronize empty_cache set_device manual_seed manual_seed_all reset_peak_memory_stats set_stream init"
    numbers = "memory_allocated memory_reserved max_memory_allocated max_memory_reserved current_device"
    return {
        **dict.fromkeys(names.split(), _nothing),
        **dict.fromkeys(numbers.split(), lambda *_, **__: 0),
        **dict.fromkeys(("Event", "Stream", "stream", "current_stream", "default_stream"), Timeless),
        "set_per_process_memory_fraction": _nothing, "set_rng_state": _nothing, "ipc_collect": _nothing,
        "set_rng_state_all": _nothing, "get_rng_state": lambda *_: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()], "memory_summary": lambda *_, **__: "",
        "is_available": shown, "device_count": lambda: ranks, "is_bf16_supported": shown,
        "get_device_name": lambda *_: about.name, "get_device_properties": lambda *_: about,
        "get_device_capability": lambda *_: (9, 0), "mem_get_info": lambda *_: (80 << 30, 80 << 30),
        "memory_stats": lambda *_: {"allocated_bytes.all.peak": 0, "allocated_bytes.all.current": 0},
    }  # fmt: skip


@contextmanager
def card_on_cpu(folder: str, ranks: int = 1) -> Iterator[None]:
    """A context in which a script of a folder trains on a card that is this CPU."""
    counter().card_install()
    import torch._dynamo  # before functions are replaced: it makes a table of them

    with ExitStack() as entered:
        entered.enter_context(torch.compiler.set_stance("force_eager"))
        replace = functools.partial(_replaced, entered)
        for name, value in cuda(folder, ranks).items():
            replace(torch.cuda, name, value)
        replace(torch.accelerator, "is_available", torch.cuda.is_available)
        replace(torch.accelerator, "current_accelerator", _current(folder))
        autocast, scaler = torch.amp.autocast_mode.autocast, torch.amp.GradScaler
        replace(autocast, "__init__", _autocast(autocast.__init__))
        replace(scaler, "__init__", _scaler(scaler.__init__))
        for asked in ("is_autocast_enabled", "get_autocast_dtype"):
            replace(torch, asked, _of_cpu(getattr(torch, asked)))
        replace(torch, "load", _load(torch.load))
        replace(torch, "Generator", Generator)
        replace(T, "record_stream", _nothing)
        replace(torch.UntypedStorage, "resize_", _resize(torch.UntypedStorage.resize_))
        replace(torch.autograd, "_engine_run_backward", _backward(torch.autograd._engine_run_backward))
        if ranks > 1:
            _distributed(replace)
        entered.enter_context(Named(folder))
        yield


def _current(folder: str) -> Callable[..., torch.device | None]:
    def asked(*_: Any, **__: Any) -> torch.device | None:
        is_scripts = sys._getframe(1).f_code.co_filename.startswith(folder)
        return torch.device("cuda", 0) if is_scripts else None

    return asked


def _replaced(entered: ExitStack, owner: Any, name: str, value: Any) -> None:
    entered.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def _resize(plain: Any) -> Any:
    def resize(storage: torch.UntypedStorage, size: int) -> Any:  # FSDP frees and takes parameters by it
        with marked(CARD):
            return plain(storage, size)

    return resize


def _backward(plain: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        before = counter().card_backward(1)
        try:
            return plain(*args, **kwargs)
        finally:
            counter().card_backward(before)

    return run


def _autocast(plain: Callable[..., None]) -> Callable[..., None]:
    def begin(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        plain(self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    return begin


def _scaler(plain: Callable[..., None]) -> Callable[..., None]:
    def begin(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        plain(self, "cpu", *args, **kwargs)

    return begin


def _of_cpu(plain: Any) -> Any:
    return lambda device=None, *rest: plain("cpu" if device == "cuda" else device) if device else plain()


def _load(plain: Any) -> Any:
    def load(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        read = plain(file, CPU, *args, **kwargs)
        there = isinstance(map_location, torch.device) or str(map_location).startswith("cuda")
        return tree_map_only(T, moved, read) if there else read

    return load


def _distributed(replace: Callable[..., None]) -> None:
    import torch.distributed as dist
    from torch.distributed import device_mesh, distributed_c10d
    from torch.nn.parallel import DistributedDataParallel

    def begins(plain: Any) -> Any:
        return lambda *_, **kwargs: plain("gloo")

    def by_name(plain: Any) -> Any:
        return lambda name, *args, **kwargs: plain("cpu" if name == "cuda" else name, *args, **kwargs)

    def with_hands(plain: Any) -> Any:
        def begin(self: Any, module: Any, *_: Any, **kwargs: Any) -> None:
            with marked(CARD):
                plain(self, module, **{**kwargs, "device_ids": None, "output_device": None})

        return begin

    begin = begins(dist.init_process_group)
    for owner in (dist, distributed_c10d, device_mesh):
        replace(owner, "init_process_group", begin)
    replace(dist, "barrier", _nothing)
    replace(DistributedDataParallel, "__init__", with_hands(DistributedDataParallel.__init__))
    mesh = by_name(device_mesh.init_device_mesh)
    for owner in (dist, device_mesh):
        replace(owner, "init_device_mesh", mesh)
    from torch.distributed.fsdp._fully_shard import _fsdp_init, _fully_shard

    for module in (_fsdp_init, _fully_shard):
        if hasattr(module, "_move_states_to_device"):
            replace(module, "_move_states_to_device", _states)


def _states(parameters: Any, buffers: Any, device: Any) -> None:
    for each in (*parameters, *buffers):
        each.data = moved(each.data)
