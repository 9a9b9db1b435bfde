"""What a mirror costs training: next to nothing in the trainer's own threads, and the rest at the lowest priority."""

import os
import time
from pathlib import Path

import surefoot
from surefoot.checkpoint.mirror import Mirror
from tests.mirrors import copied, couriers_of


def niceness(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])


def test_copying_costs_the_trainer_less_than_a_hundredth_of_its_time(tmp_path, monkeypatch):
    """By the processor's time, so that it holds on a busy machine too; here every other step is saved and copied."""
    spent, nice = [], set()
    for name in ("take", "holds", "_has_copied"):
        monkeypatch.setattr(Mirror, name, timed(getattr(Mirror, name), spent))

    def tell(run, row):
        if row.step > 6:
            nice.update(map(niceness, couriers_of(os.getpid())))

    began = time.process_time()
    surefoot.train(copied(mirror=f"file://{tmp_path}/copy"), path=str(tmp_path / "run"), tell=tell)
    assert len(spent) > 6
    assert sum(spent) < 0.01 * (time.process_time() - began)
    assert nice == {19}


def timed(function, spent: list[float]):
    def called(*args, **options):
        began = time.thread_time()
        try:
            return function(*args, **options)
        finally:
            spent.append(time.thread_time() - began)

    return called
