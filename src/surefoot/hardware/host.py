"""Host: the memory and the limits of this machine, and None where its system does not tell."""

from __future__ import annotations

import os
import platform

from surefoot.errors import WorldError


def memory_bytes() -> int | None:
    """The memory of the machine. Windows does not tell it in this way."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def known_memory_bytes() -> int:
    """The memory of the machine, or one sentence where it is needed and not told."""
    found = memory_bytes()
    if found is None:
        raise WorldError(
            f"{platform.system()} does not say here how much memory this machine has; run it on Linux or macOS"
        )
    return found


def page_bytes() -> int:
    """The size of a page of memory; the usual 4 KiB where the system does not tell."""
    return os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def most_open_files() -> int | None:
    """How many files a process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
