"""Keeps libraries that print progress, advice and what they could not load from filling the terminal."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings, no log below ERROR, nothing on stdout. Errors are raised as ever."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
