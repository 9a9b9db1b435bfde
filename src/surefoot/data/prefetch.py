"""Prepares the next items of an iterator in one thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from typing_extensions import Self

Item = TypeVar("Item")


class Ahead(Iterator[Item], Generic[Item]):
    """Prepares up to `depth` items of an iterator ahead. An error is raised at the place of its item."""

    def __init__(self, items: Iterator[Item], depth: int = 2) -> None:
        self._ready: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(depth)
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._make, args=(items,), name="surefoot-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        if self._error is None:
            item, self._error = self._ready.get()
        if self._error is not None:
            raise self._error
        return cast(Item, item)

    def close(self) -> None:
        """Stops the thread."""
        self._stopped.set()
        while self._thread.is_alive():
            try:
                self._ready.get_nowait()
            except queue.Empty:
                self._thread.join(0.01)

    def _make(self, items: Iterator[Item]) -> None:
        try:
            for item in items:
                self._ready.put((item, None))
                if self._stopped.is_set():
                    return
            self._ready.put((None, StopIteration()))
        except BaseException as error:
            self._ready.put((None, error))
