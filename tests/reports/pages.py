"""What pages are made of, and the browser that opens them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from surefoot.records.profile import Profile
from surefoot.records.tally import Account, Tally
from surefoot.records.token_ledger import SourceTokens, TokenLedger
from surefoot.records.usage import Peak, Timeline, Usage

MIB = 2**20
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
TIMELINE = Timeline(
    ("forward", "forward", "loss", "backward", "update"),
    {"parameters": (4 * MIB,) * 5, "activations": (MIB, 3 * MIB, 4 * MIB, 2 * MIB, 0)},
    2,
)
MEMORY = [Account("memory/parameters/layers.0", 4 * MIB, "bytes"), Account("memory/activations/head", 4 * MIB, "bytes")]
FLOPS = [Account("flops/forward/layers.0", 8e9, "FLOP"), Account("flops/backward/head", 4e9, "FLOP")]
STEADY = Usage(
    Tally.of([*MEMORY, *FLOPS]), Peak(8 * MIB, "loss", "head"), {"loss": Peak(8 * MIB, "loss")}, timeline=TIMELINE
)
PROFILE = Profile(
    "gpt", {"layers": 2}, "cpu", 1_000, STEADY, STEADY, 2, (1.0, 1.0),
    Tally.of([Account("seconds/forward", 1.0, "seconds")]),
    allocated_peak_bytes=8 * MIB, data_seconds=(0.3, 0.3),
    counted=Tally.of([Account("moved/forward/layers.0", 1e8, "bytes"), Account("moved/backward/head", 1e9, "bytes")]),
    traced=Tally.of([
        Account("time/forward/layers.0/aten::mm", 0.6, "seconds"),
        Account("time/backward/head/aten::add", 0.3, "seconds"),
        Account("time/load/(outside modules)/python", 0.1, "seconds"),
    ]),
)  # fmt: skip
TOKENS = TokenLedger((SourceTokens("web", 10**6, 900_000, 1_000, 100, 50),), padding=77)


def browse(file: Path, folder: Path) -> tuple[str, list[str], list[str]]:
    """What Chromium makes of a page: its elements, what it complains about, and what it asks the network for."""
    net = folder / "net.json"
    quiet = ("--disable-background-networking", "--disable-component-update", "--no-first-run", "--disable-sync")
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", *quiet, f"--user-data-dir={folder / 'profile'}",
         f"--log-net-log={net}", "--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    of_the_page = [line for line in net.read_text(errors="replace").splitlines() if "site=file://" in line]
    return done.stdout, complaints, re.findall(r'"url":"(https?://[^"]+)"', "".join(of_the_page))
