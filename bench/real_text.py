"""Real text for benches: Debian packages of documentation, Python sources, and Shakespeare, as documents.

    python bench/real_text.py FOLDER [--megabytes 50]

writes each document to a file, a folder for each kind.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

DEBIAN = ("linux-doc-6.1", "python3.11-doc", "perl-doc", "manpages-dev")


def fetched(name: str, folder: Path, *, source: bool = False) -> Path:
    """A distribution from PyPI, as a file."""
    kind = ["--no-binary", ":all:"] if source else []
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *kind, "-d", str(folder), name]
    subprocess.run(command, check=True, capture_output=True)
    return next(path for path in folder.iterdir() if path.name.startswith(name))


def texts(folder: Path, megabytes: int, *, quick: bool) -> dict[str, list[str]]:
    """Real text by kind, an equal share of each as far as it goes."""
    kinds = {"python": python_sources()}
    if not quick:
        kinds |= {"debian": debian_documents(folder), "books": books(folder)}
    found: dict[str, list[str]] = {name: [] for name in kinds}
    for name, documents in kinds.items():
        left = megabytes * 1_000_000 * (0.1 if name == "books" else 1 / len(kinds) + 0.12 * (len(kinds) > 1))
        for document in documents:
            found[name].append(document)
            left -= len(document.encode())
            if left < 0:
                break
    return found


def python_sources() -> Iterator[str]:
    for name in ("stdlib", "purelib"):
        for path in sorted(Path(sysconfig.get_path(name)).rglob("*.py")):
            yield from readable(path.read_bytes())


def debian_documents(folder: Path) -> Iterator[str]:
    for package in DEBIAN:
        done = subprocess.run(["apt-get", "download", package], cwd=folder, capture_output=True, check=False)
        for path in folder.glob(f"{package}_*.deb") if not done.returncode else ():
            subprocess.run(["dpkg-deb", "-x", str(path), str(folder / package)], check=True)
            for file in sorted((folder / package).rglob("*")):
                if file.is_file() and not file.is_symlink() and file.suffix != ".gz":
                    yield from readable(file.read_bytes())


def books(folder: Path) -> Iterator[str]:
    try:
        archive = fetched("shakespeare", folder, source=True)
    except (subprocess.CalledProcessError, StopIteration):
        return
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            if member.isfile() and member.name.endswith((".txt", ".gut")):
                yield from readable(tar.extractfile(member).read())


def readable(content: bytes) -> Iterator[str]:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return
    if len(text) > 200 and "\0" not in text:
        yield text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as fetched_to:
        for kind, documents in texts(Path(fetched_to), arguments.megabytes, quick=False).items():
            (arguments.folder / kind).mkdir(parents=True)
            for number, document in enumerate(documents):
                (arguments.folder / kind / f"{number:05d}.txt").write_text(document, encoding="utf-8", newline="")
            print(f"{kind}: {len(documents):,} documents, {sum(len(each.encode()) for each in documents):,} bytes")


if __name__ == "__main__":
    main()
