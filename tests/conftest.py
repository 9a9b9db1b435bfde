"""Fixtures: small data, small recipes, golden texts."""

import gc
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from surefoot import Recipe, load_recipe
from tests.tiers import QUICK_FILES, SEED_WITHOUT_GIT, TESTS, commit_of, sample

settings.register_profile("any-machine", deadline=None)  # a busy machine is slow, and no test is wrong for it
settings.load_profile("any-machine")
os.environ.setdefault("SUREFOOT_RAISE", "1")  # what goes wrong in watching is to be seen

SMALL = {
    "regression": ["samples=64"],
    "cruncher": ["width=16", "layers=3", "samples=128"],
    "sentiment": ["samples=256"],
    "fashion": ["hidden=16"],
    "fashion-convolutional": ["hidden=16", "network=convolutional"],
    "gpt": ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=4", "global_batch_tokens=256"],
}
"""Every reference recipe with the usual update, cut to run in a moment."""
SMALL_OWN = {
    "gan": ["hidden=8"],
    "ppo": ["hidden=8", "turns=4", "epochs=2"],
    "distill": ["hidden=8"],
    "sam": ["hidden=8"],
}
"""Those with a step of their own."""


SLOW = (
    "test_kills.py",
    "test_learn.py",
    "test_bench.py",
    "test_training_benches.py",
    "test_cli.py",
    "test_mirror.py",
    "test_torchrun.py",
    "test_search_options.py",
    "test_elastic.py",
    "test_metrics.py",
    "test_validation.py",
    "test_watch_stock.py",
    "test_examples.py",
    "test_own_step.py",
    "test_twins.py",
)
"""The files that take longest, by the clock. They begin first, so that no worker ends long after the others."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden texts anew")
    parser.addoption("--everything", action="store_true", help="run all tests: every sweep, and the long ones")
    parser.addoption("--sample", action="store_true", help="run an eighth of the sweeps of every file")
    parser.addoption("--sample-seed", metavar="TEXT", help="which eighth; the commit draws it unless you name it")


def pytest_configure(config: pytest.Config) -> None:
    """Settles what to run. Workers of pytest-xdist get these options as they are now, so all draw the same sample."""
    if config.option.everything:
        config.option.markexpr, config.option.sample = "", False
    if config.option.sample and not config.option.sample_seed:
        config.option.sample_seed = commit_of(TESTS) or SEED_WITHOUT_GIT


def pytest_report_header(config: pytest.Config) -> list[str]:
    seed = config.option.sample_seed
    again = f"sample of sweeps: seed {seed}; run the same again with --sample-seed {seed}"
    return [again] if config.option.sample else []


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Imports only the files of the quick tier for it: others may need packages that are not installed."""
    if config.option.markexpr != "quick" or collection_path.is_dir():
        return None
    return collection_path not in QUICK_FILES or None


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the quick tier, runs slow files first, and with `--sample` leaves out most sweeps."""
    for item in items:
        if item.path in QUICK_FILES and not item.get_closest_marker("sweep") and not item.get_closest_marker("long"):
            item.add_marker("quick")
    items.sort(key=lambda item: SLOW.index(item.path.name) if item.path.name in SLOW else len(SLOW))
    if config.option.sample:
        left = left_out(items, config.option.sample_seed)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]


def left_out(items: list[pytest.Item], seed: str) -> set[str]:
    """The sweeps that are not in the sample. Every file with sweeps keeps some."""
    sweeps: dict[Path, list[str]] = {}
    for item in items:
        if item.get_closest_marker("sweep") and not item.get_closest_marker("long"):
            sweeps.setdefault(item.path, []).append(item.nodeid)
    return {name for names in sweeps.values() for name in set(names) - sample(names, seed)}


def pytest_collection_finish() -> None:
    """Takes the objects of imported modules, which are most of all, out of every garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def fashion_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small IDX files in which every class has its own bright row."""
    folder = tmp_path_factory.mktemp("fashion")
    generator = np.random.default_rng(0)
    for part, count in (("train", 600), ("t10k", 100)):
        labels = generator.integers(0, 10, count, dtype=np.uint8)
        images = generator.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        images[np.arange(count), labels * 2 + 4] = 250
        write_idx(folder / f"{part}-images-idx3-ubyte", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte", labels)
    return folder


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(header + array.tobytes())


@pytest.fixture
def small_recipe(fashion_folder: Path):
    """`small_recipe("gpt", "precision=bf16-mixed")`: a reference recipe, cut down."""

    def load(name: str, *words: str) -> Recipe:
        folder = [f"folder={fashion_folder}"] if name.startswith("fashion") else []
        return load_recipe(name.partition("-")[0], [*{**SMALL, **SMALL_OWN}[name], *folder, *words])

    return load


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """`golden("plan.txt", text)` compares with tests/golden; `pytest --update-golden` writes it anew."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
