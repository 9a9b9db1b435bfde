"""The record of a bench: what was measured, where and with what, as a JSON file."""

from __future__ import annotations

import json
import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return {
        "cpu": named[1] if named else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def write_record(path: Path, found: dict[str, Any]) -> None:
    """Writes what was found, with the date and the machine."""
    record = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), **found}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
