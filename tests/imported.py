"""What a fresh interpreter imports."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def imported_by(code: str, *, cwd: Path = ROOT) -> set[str]:
    """The modules that a fresh interpreter imports for a piece of code, by `-X importtime`."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, cwd=cwd, check=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


CLI = "import sys; sys.argv = {argv!r}\nfrom surefoot.cli.main import main\ntry: main()\nexcept SystemExit: pass"
