"""Makes the pictures of the README: a plan and a report, as Chromium shows their pages.

python docs/pictures.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
PLAN = "plan llama size=8b precision=bf16-mixed max_steps=200000 --on 8xh100-sxm --html page.html"
RUN = (
    "train reviews.py hidden=32 --run runs/first",
    "profile reviews.py hidden=32 --run runs/first",
    "report runs/first --html page.html",
)
HEIGHT = 1000


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, commands in {"plan": (PLAN,), "report": RUN}.items():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ROOT / "examples" / "reviews.py", folder)
            for command in commands:
                subprocess.run([sys.executable, "-m", "surefoot", *command.split()], cwd=folder, check=True)
            _photograph(Path(folder) / "page.html", PICTURES / f"{name}.png")


def _photograph(page: Path, picture: Path) -> None:
    size = f"--window-size=1280,{HEIGHT}"
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000"]
    subprocess.run([CHROMIUM, *quiet, size, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)
    print(picture.relative_to(ROOT))


if __name__ == "__main__":
    main()
