"""Causes, from where processes stand: hand-made records, no process."""

from surefoot.debug.hangs.stuck_cause import cause_of
from surefoot.debug.hangs.waiting_places import BACKWARD, COLLECTIVE, DDP_FORWARD, IDLE, LOADER, LOCK, SAMPLE
from surefoot.records.stuck import Frame, Standing, Thread


def at(line: int, function: str = "step") -> tuple[Frame, ...]:
    return (Frame("wait", "/usr/lib/python3/threading.py", 1), Frame(function, "/home/me/train.py", line, user=True))


def rank(
    number: int, line: int, waits_in: str = COLLECTIVE, call: str = "all_reduce", state: str = "still"
) -> Standing:
    return Standing(100 + number, f"rank {number}", state, waits_in, call, at(line), rank=number)


def main(waits_in: str, **rest) -> Standing:
    return Standing(1, "main", "still", waits_in, "", at(7), **rest)


def worker(pid: int, waits_in: str, line: int, state: str = "still") -> Standing:
    return Standing(pid, "loader worker", state, waits_in, "", at(line, "__getitem__"), parent=1)


def test_a_rank_in_no_collective_is_named_with_its_line():
    cause = cause_of([rank(0, 12), rank(1, 30, "a sleep", ""), rank(2, 12)])
    assert cause.stuck
    assert cause.text.startswith("rank 1 is in no collective: rank 1 waits in a sleep at train.py:30 in step")
    assert cause.text.endswith("; the others wait in all_reduce at train.py:12 in step")


def test_ranks_in_different_collectives():
    cause = cause_of([rank(0, 12), rank(1, 15, call="barrier"), rank(2, 12)])
    assert "ranks 0, 2 in all_reduce at train.py:12 in step; rank 1 in barrier at train.py:15 in step" in cause.text


def test_the_same_collective_at_the_same_line_leaves_shapes_and_the_network():
    cause = cause_of([rank(0, 12), rank(1, 12)])
    assert cause.text == "all 2 ranks wait in all_reduce at train.py:12 in step"
    assert "shapes" in cause.remedy


def test_ranks_that_all_receive_wait_for_one_that_sends():
    cause = cause_of([rank(0, 12, call="recv"), rank(1, 15, call="recv")])
    assert cause.text.startswith("all ranks wait to receive, and none to send: rank 0 in recv at train.py:12")
    assert "send first" in cause.remedy
    assert "different collectives" in cause_of([rank(0, 12, call="recv"), rank(1, 15, call="barrier")]).text


def test_a_forward_of_ddp_is_a_collective():
    cause = cause_of([rank(0, 12, call=DDP_FORWARD), rank(1, 15, BACKWARD, "")])
    assert "rank 0 in a forward of DistributedDataParallel at train.py:12 in step; rank 1 in backward at" in cause.text
    assert "`model.module`" in cause.remedy


def test_a_rank_that_sleeps_again_and_again_is_late():
    cause = cause_of([rank(0, 12), rank(1, 30, "a sleep", "", state="polling")])
    assert cause.stuck
    assert "rank 1 waits in a sleep, again and again, at train.py:30 in step" in cause.text
    assert cause.remedy.startswith("Look at what that loop waits for")


def test_a_worker_that_sleeps_again_and_again_is_not_at_work():
    cause = cause_of([main(LOADER), worker(2, "a sleep", 55, state="polling"), worker(3, IDLE, 9)])
    assert cause.stuck
    assert "loader worker (process 2) is in a sleep, again and again, at train.py:55" in cause.text


def test_a_rank_that_is_gone():
    cause = cause_of([rank(0, 12), rank(2, 12)], ranks_expected=3)
    assert cause.text == "rank 1 of this machine is gone; the others wait in all_reduce at train.py:12 in step"


def test_ranks_of_the_second_machine():
    assert cause_of([rank(2, 12)], ranks_expected=2).text.startswith("rank 3 of this machine is gone")


def test_a_rank_that_is_stopped():
    cause = cause_of([rank(0, 12), rank(1, 14, state="stopped")])
    assert cause.text.startswith("rank 1 (process 101) is stopped")
    assert cause.remedy == "Let it go on: kill -CONT 101"


def test_a_rank_that_computes_while_others_wait_is_late_and_stuck_ranks_are_not_excused():
    cause = cause_of([rank(0, 12), rank(1, 40, "", "", state="computing")])
    assert cause.stuck
    assert "rank 1 is in no collective: it stands at train.py:40 in step" in cause.text


def test_a_rank_whose_loader_hangs_has_the_line_of_the_worker():
    late = Standing(1, "rank 1", "still", LOADER, "", at(7), rank=1)
    cause = cause_of([rank(0, 12), late, worker(2, SAMPLE, 55), worker(3, IDLE, 9)])
    assert "loader worker (process 2) is at train.py:55 in __getitem__" in cause.text


def test_a_worker_at_work_is_slow_and_not_stuck():
    cause = cause_of([main(LOADER), worker(2, SAMPLE, 55, state="computing"), worker(3, IDLE, 9)])
    assert not cause.stuck
    assert "loader worker (process 2) is at work at train.py:55" in cause.text


def test_workers_that_have_nothing_to_do():
    cause = cause_of([main(LOADER), worker(2, IDLE, 9), worker(3, IDLE, 9)])
    assert "its 2 workers have nothing to do" in cause.text


def test_a_worker_that_has_ended():
    cause = cause_of([main(LOADER), worker(2, "", 9, state="ended")])
    assert "loader worker (process 2) has ended" in cause.text


def test_a_worker_that_waits_for_a_lock_was_forked_while_it_was_held():
    cause = cause_of([main(LOADER), worker(2, LOCK, 31)])
    assert "waits for a lock at train.py:31 in __getitem__" in cause.text
    assert "forked" in cause.remedy


def test_two_threads_that_wait_for_each_other():
    cause = cause_of([main(LOCK, threads=(Thread("writer", LOCK, at(22, "write")),))])
    assert cause.text == (
        "main waits for a lock at train.py:7 in step; thread writer waits for a lock at train.py:22 in write"
    )
    assert "same order" in cause.remedy


def test_a_process_that_moves_is_not_stuck():
    cause = cause_of([Standing(1, "main", "moving", "", "", at(7))])
    assert not cause.stuck
    assert cause.text.startswith("not stuck")


def test_nothing_known_says_so():
    cause = cause_of([main("")])
    assert cause.stuck
    assert "none of them waits in a place that is known" in cause.text
