"""Makes the pictures of the README and of the front page, from what surefoot prints today.

python docs/pictures.py

Each picture has a text of the same name beside it: the command and what it printed. Tests compare that with pages.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
COLUMNS, HEIGHT = 80, 1050
TERMINALS = {"watch": "watch house_prices.py"}
"""Pictures of a terminal, after this command."""
PAGES = {
    "plan": ("plan llama size=8b precision=bf16-mixed max_steps=200000 --on 8xh100-sxm",),
    "report": (
        "train reviews.py hidden=32 --run runs/first",
        "profile reviews.py hidden=32 --run runs/first",
        "report runs/first",
    ),
}
"""Pictures of the page that the last command writes with --html."""
EXAMPLES = ("house_prices.py", "reviews.py")
THEME = TerminalTheme(
    (22, 27, 34),
    (230, 237, 243),
    [
        (72, 79, 88),
        (255, 123, 114),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (177, 186, 196),
    ],
)


def make_pictures(to: Path) -> None:
    """All pictures. Without a browser, those of pages stay as they are."""
    to.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in EXAMPLES:
            shutil.copy(ROOT / "examples" / name, folder)
        for name, command in TERMINALS.items():
            typed = f"$ surefoot {command}\n{_printed(command, Path(folder), FORCE_COLOR='1')}"
            (to / f"{name}.svg").write_text(terminal(typed), encoding="utf-8")
            _keep(to / f"{name}.txt", Text.from_ansi(typed).plain)
        for name, commands in PAGES.items() if CHROMIUM else ():
            for command in commands[:-1]:
                _printed(command, Path(folder))
            printed = _printed(f"{commands[-1]} --html page.html", Path(folder))
            _photograph(Path(folder) / "page.html", to / f"{name}.png")
            _keep(to / f"{name}.txt", f"$ surefoot {commands[-1]}\n{printed}")


def terminal(printed: str) -> str:
    """Text with ANSI colours as an SVG. The font is the reader's own: a page loads nothing from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    lines = [line.rstrip() for line in printed.splitlines()]
    console.print(Text.from_ansi("\n".join(lines)), highlight=False)
    made = console.export_svg(title="surefoot", theme=THEME, unique_id="terminal")
    made = re.sub(r"@font-face \{.*?\}\s*", "", made, flags=re.DOTALL).replace("Fira Code", "ui-monospace, Menlo")
    return re.sub(r"[ \t]+$", "", made, flags=re.MULTILINE)


def _printed(command: str, folder: Path, **environment: str) -> str:
    """What a command prints. One that finds a bug exits with 1."""
    done = subprocess.run(
        [sys.executable, "-m", "surefoot", *command.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": str(COLUMNS), **environment},
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"surefoot {command}\n{done.stdout}{done.stderr}")
    return done.stdout


def _keep(file: Path, printed: str) -> None:
    file.write_text("\n".join(line.rstrip() for line in printed.splitlines()) + "\n", encoding="utf-8")


def _photograph(page: Path, picture: Path) -> None:
    size = f"--window-size=1280,{HEIGHT}"
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000"]
    subprocess.run([CHROMIUM, *quiet, size, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    make_pictures(PICTURES)
    print(*sorted(picture.relative_to(ROOT).as_posix() for picture in PICTURES.iterdir()), sep="\n")
