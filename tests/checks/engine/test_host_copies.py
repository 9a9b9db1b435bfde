"""Values of an accelerator are read many at once, unchanged, and not again before they change."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from surefoot.checks.engine.host_copies import HostCopies
from tests.second_device import MISSING

ROOT = Path(__file__).parent.parent.parent.parent
on_a_device = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def on_device(code: str) -> Any:
    """What a program in a process with the second device leaves in `found`."""
    before = """
        import json
        import torch
        from surefoot.checks.engine import host_copies
        from tests import second_device

        second_device.register()
        host = host_copies.HostCopies()

        def waits(read):
            before = second_device.counts().waits
            read()
            return second_device.counts().waits - before
    """
    program = f"{textwrap.dedent(before)}{textwrap.dedent(code)}\nprint(json.dumps(found))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@on_a_device
def test_tensors_of_all_kinds_arrive_as_they_are_after_one_wait():
    found = on_device("""
        torch.manual_seed(0)
        kinds = (torch.float64, torch.int8, torch.float16, torch.float32, torch.bool, torch.bfloat16, torch.int64)
        given = [(torch.randn(3, 5) * 9).to(kind) for kind in kinds]
        given += [torch.randn(4, 6).t(), torch.randn(40)[::7], torch.tensor(2.5), torch.empty(0), torch.randn(3)[1:]]
        there = [each.to("second") for each in given]
        found = [waits(lambda: host.fresh(there))]
        found += [a.dtype == b.dtype and a.is_cpu and torch.equal(a, b) for a, b in zip(host.fresh(there), given)]
    """)
    assert found == [1, *[True] * 12]


@on_a_device
def test_a_tensor_is_read_again_only_after_a_write_or_the_end_of_the_step():
    found = on_device("""
        x = torch.ones(3, device="second")
        found = [waits(lambda: host.of(x)), waits(lambda: host.of(x)), waits(lambda: host.fresh([x]))]
        x.add_(1)
        found += [waits(lambda: host.of(x)), host.of(x).tolist()]
        host.forget()
        found += [waits(lambda: host.of(x)), waits(lambda: host.of(x + 1)), host.nearest(x).is_cpu]
        x.data.add_(1)  # autograd does not see it
        found += [host.of(x).tolist(), host.fresh([x])[0].tolist()]
    """)
    assert found == [1, 0, 1, 1, [2.0] * 3, 1, 1, True, [2.0] * 3, [3.0] * 3]


@on_a_device
def test_what_can_wait_is_read_with_the_next_values():
    found = on_device("""
        x, seen = torch.ones(3, device="second"), []
        found = [waits(lambda: host.later(x.sum(), lambda value: seen.append(float(value)))), len(seen)]
        found += [waits(lambda: host.fresh([x])), list(seen)]
        host.later(x[0], lambda value: seen.append(float(value)))
        x.zero_()
        found += [waits(host.settle), seen, waits(host.settle)]
    """)
    assert found == [0, 0, 1, [3.0], 1, [3.0, 1.0], 0]


@on_a_device
def test_in_one_moment_the_same_memory_is_read_once():
    found = on_device("""
        x = torch.arange(6.0, device="second")
        with host.moment():
            found = [waits(lambda: host.fresh([x[::2]])), waits(lambda: host.fresh([x[::2]]))]
            found += [waits(lambda: host.fresh([x[::2], x[1:]])), host.fresh([x[1:] * 1])[0].tolist()]
        found += [waits(lambda: host.fresh([x[::2]]))]
    """)
    assert found == [1, 0, 1, [1.0, 2.0, 3.0, 4.0, 5.0], 1]


@on_a_device
def test_a_full_device_is_read_without_a_buffer():
    found = on_device("""
        given = [torch.full((100,), float(n), device="second") for n in range(4)]
        second_device.limit(second_device.counts().live_bytes)
        found = [waits(lambda: host.fresh(given)), [float(each.sum()) for each in host.fresh(given)]]
    """)
    assert found == [4, [0.0, 100.0, 200.0, 300.0]]


@on_a_device
def test_large_tensors_take_no_memory_of_the_device():
    found = on_device("""
        given = [torch.ones(host_copies.MOST_PACKED // 4, device="second") for _ in range(2)]
        small = [torch.ones(300_000, device="second") for _ in range(6)]
        before = second_device.counts().live_bytes
        second_device.reset_peak()
        found = [waits(lambda: host.fresh(given)), second_device.counts().peak_bytes - before]
        found += [waits(lambda: host.fresh(small)), second_device.counts().peak_bytes - before]
    """)
    assert found[:3] == [2, 0, 2]
    assert 0 < found[3] <= 1 << 22


def test_values_on_the_host_are_read_where_they_are():
    x, seen = torch.ones(3, requires_grad=True), []
    host = HostCopies()
    (same,) = host.all_of([x])
    assert same.data_ptr() == x.data_ptr()
    assert not same.requires_grad
    host.later(x, seen.append)
    assert len(seen) == 1
