"""The second device counts waits and bytes exactly, and surefoot trains, checks, profiles and watches on it."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.second_device import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
ROOT = Path(__file__).parent.parent.parent

TRAINING = """
import torch
from torch import nn

torch.manual_seed(0)
device = torch.accelerator.current_accelerator() if {on_device} else "cpu"
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(5):
    batch = torch.randn(32, 8).to(device)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch), batch[:, :4].argmax(1)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print([parameter.detach().cpu().numpy().tobytes().hex() for parameter in model.parameters()])
"""


def ran(*words: str, expected: int = 0) -> str:
    """What a child process prints."""
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


def surefoot(*words: str) -> str:
    return ran("-m", "tests.second_device", *words)


def on_device(code: str) -> Any:
    """What a program in a process with the device leaves in `found`.

    The process leaves without Python's farewell: autograd's thread of the device may still release a Python hook, and
    asking for the interpreter while that ends aborts the process, on any device.
    """
    before = "import json\nimport torch\nfrom tests import second_device\nsecond_device.register()\n"
    after = "print(json.dumps(found), flush=True)\nimport os\nos._exit(0)"
    return json.loads(ran("-c", f"{before}{textwrap.dedent(code)}\n{after}").splitlines()[-1])


def test_each_read_for_which_a_gpu_would_wait_is_counted_once():
    found = on_device("""
        x = torch.arange(10.0, device="second")
        mask = x > 3
        reads = {
            "item": lambda: x.sum().item(),
            "float": lambda: float(x[0]),
            "bool": lambda: bool(mask.any()),
            "tolist": lambda: x.tolist(),
            "cpu": lambda: x.cpu(),
            "numpy": lambda: x.to("cpu").numpy(),
            "equal": lambda: torch.equal(x, x),
            "nonzero": lambda: x.nonzero(),
            "unique": lambda: x.unique(),
            "read by a mask": lambda: x[mask],
            "write by a mask": lambda: x.__setitem__(mask, 5.0),
            "masked_select": lambda: x.masked_select(mask),
            "synchronize": lambda: torch.accelerator.synchronize(),
            "none": lambda: [(x * 2 + 1).exp().mean(), x[2:4], x.view(2, 5).t().contiguous(), x.clone(), x[[1, 2]]],
            "to the device": lambda: torch.ones(3).to("second"),
        }
        found = {}
        for name, read in reads.items():
            before = second_device.counts()
            read()
            after = second_device.counts()
            found[name] = [kind for kind, a, b in zip(second_device.KINDS, after, before) for _ in range(a - b)]
    """)
    assert found == {
        "item": ["scalar"],
        "float": ["scalar"],
        "bool": ["scalar"],
        "tolist": ["copy"],
        "cpu": ["copy"],
        "numpy": ["copy"],
        "equal": ["scalar"],
        "nonzero": ["shape"],
        "unique": ["shape"],
        "read by a mask": ["shape"],
        "write by a mask": ["shape"],
        "masked_select": ["shape"],
        "synchronize": ["synchronize"],
        "none": [],
        "to the device": [],
    }


def test_waits_are_heard_where_they_happen_also_in_backward():
    found = on_device("""
        found = []
        x = torch.ones(3, device="second", requires_grad=True)
        x.register_hook(lambda gradient: print(gradient.sum().item()))
        with second_device.heard(found.append):
            (x * 2).sum().backward()
            x.detach().cpu()
        x.detach().cpu()
    """)
    assert found == ["scalar", "copy"]


def test_bytes_are_counted_as_requested_until_they_are_freed():
    found = on_device("""
        base, found = second_device.counts().live_bytes, []
        def note():
            counts = second_device.counts()
            found.append([counts.live_bytes - base, counts.peak_bytes - base])
        held = torch.empty(100, device="second")
        view = held[10:].view(2, 45)
        note()
        more = torch.empty(3, dtype=torch.uint8, device="second")
        del held, more
        note()
        del view
        second_device.reset_peak()
        note()
    """)
    assert found == [[400, 400], [400, 403], [0, 0]]


def test_it_computes_what_the_cpu_computes():
    bits = []
    for place in (True, False):
        register = "from tests import second_device\nsecond_device.register()\n"
        bits.append(ran("-c", register + TRAINING.format(on_device=place)))
    assert bits[0] == bits[1]


@pytest.mark.parametrize("name", ["cruncher", "regression"])
def test_a_training_resumes_to_the_same_bits(name: str, tmp_path: Path):
    found = on_device(f"""
        from dataclasses import replace
        import surefoot
        from tests.conftest import SMALL

        recipe = replace(surefoot.load_recipe("{name}", SMALL["{name}"]), max_steps=8, save_every=3)

        def stop(run, row):
            if row.step == 5:
                raise KeyboardInterrupt

        def told(run):
            return [[row.step, row.loss.hex(), row.grad_norm.hex()] for row in run.rows()]

        alone = surefoot.train(recipe, path=r"{tmp_path / "alone"}")
        assert second_device.counts().peak_bytes > 0
        try:
            surefoot.train(recipe, path=r"{tmp_path / "parts"}", tell=stop)
        except KeyboardInterrupt:
            torch.randn(5)
        from surefoot.checkpoint.store import Checkpoints
        saved = Checkpoints(surefoot.read_run(r"{tmp_path / "parts"}").checkpoints).newest().step
        parts = surefoot.train(recipe, path=r"{tmp_path / "parts"}")
        found = [told(alone), told(parts), alone.weights.read_bytes() == parts.weights.read_bytes(), saved]
    """)
    alone, parts, same_weights, saved = found
    assert saved == 3  # the resume did not start again from step 0
    assert len(alone) == 8
    assert parts == alone
    assert same_weights


def test_check_and_profile_run_on_it():
    assert "nothing found by" in surefoot("check", "regression", "samples=64")
    assert "no datasheet peak for 'second'" in surefoot("profile", "regression", "samples=64")


def test_a_watched_script_computes_the_same_bits_on_it(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING.format(on_device=True), encoding="utf-8")
    bare = on_device(f"""
        import contextlib, io, runpy
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            runpy.run_path(r"{script}")
        found = printed.getvalue()
    """)
    watched = surefoot("watch", str(script))
    assert watched.startswith(bare)
    assert "nothing found by" in " ".join(watched.split())


DERIVATIVES = """
import torch
from torch import nn

torch.manual_seed(0)
device = torch.accelerator.current_accelerator()
model = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1)).to(device)
points = torch.rand(64, 2).to(device).requires_grad_()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(12):
    (first,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)
    optimizer.zero_grad()
    (first[:, 1] - 0.1 * second[:, 0] - 1).pow(2).mean().backward()
    optimizer.step()
"""


def test_a_graph_of_derivatives_does_not_grow_because_a_thread_of_the_device_numbers_it(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(DERIVATIVES, encoding="utf-8")
    assert "growing-graph" not in surefoot("watch", str(script))


def test_the_bench_counts_no_wait_of_the_bare_loop_and_those_of_the_watched_one():
    lines = ran("bench/second_device.py", "--quick").splitlines()
    assert "bare 0" in lines[0], lines
    assert re.fullmatch(
        r"RESULT waits_first_6=\d+ added_bytes_first_6=\d+ waits_looked_6=\d+ added_bytes_looked_6=\d+", lines[-1]
    )


def test_a_device_without_float64_trains_evaluates_and_is_checked(tmp_path: Path):
    """As MPS, which nobody here has: every operator that makes a float64 tensor on the device raises."""
    found = on_device(f"""
        from dataclasses import replace
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves
        import surefoot
        from surefoot.world import device
        from tests.conftest import SMALL

        class WithoutFloat64(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                out = func(*args, **(kwargs or {{}}))
                for each in tree_leaves(out):
                    if isinstance(each, torch.Tensor) and each.dtype is torch.float64 and each.device.type == "second":
                        raise TypeError("Cannot convert a second Tensor to float64 dtype")
                return out

        device.WITHOUT_FLOAT64.add("second")
        recipe = surefoot.load_recipe("sentiment", SMALL["sentiment"])
        held_out = {{"evaluation": recipe.data, "evaluate_every": 2}}
        metrics = lambda model, batch: {{"n": (batch[1].sum(), 4)}}
        recipe = replace(recipe, max_steps=4, layers_every=1, max_grad_norm=1.0, metrics=metrics, **held_out)
        with WithoutFloat64():
            try:
                torch.ones(1, device="second").double()
            except TypeError:
                refuses = True
            run = surefoot.train(recipe, path=r"{tmp_path / "run"}")
            scored = surefoot.evaluate(run.path, recipe)
            findings = surefoot.check(recipe)
        skipped = [str(each) for each in findings.skipped]
        found = [refuses, run.status, scored.scores[0].loss, len(findings.checks), skipped]
    """)
    refuses, status, loss, checks, skipped = found
    assert refuses
    assert (status, skipped) == ("finished", [])
    assert loss > 0
    assert checks > 100


MOST_WAITS = 8
"""The budget of a watched update whose tensors are read."""


def test_a_watched_update_waits_at_most_8_times_whatever_the_number_of_tensors():
    figures = ran("bench/second_device.py", "--quick", "--tensors", "6", "40").splitlines()[-1]
    found = {name: int(amount) for name, amount in re.findall(r"(\w+)=(\d+)", figures)}
    assert found["waits_first_6"] == found["waits_first_40"] <= MOST_WAITS
    assert found["waits_looked_6"] == found["waits_looked_40"] <= 1
    assert found["added_bytes_looked_40"] <= 4096


LARGE = """
import torch
from torch import nn

torch.manual_seed(0)
device = torch.accelerator.current_accelerator()
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(15):
    batch = torch.randn(16, 256).to(device)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch), batch)
    loss.backward()
    optimizer.step()
print("the last loss is", loss.item())
"""


def test_a_script_that_nearly_fills_the_device_also_runs_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = tmp_path / "train.py"
    script.write_text(LARGE, encoding="utf-8")
    peak = on_device(f"""
        import runpy
        runpy.run_path(r"{script}")
        found = second_device.counts().peak_bytes
    """)
    alone = surefoot("watch", str(script))
    assert "memory" not in alone
    monkeypatch.setenv("SECOND_BYTES", str(peak + 64 * 1024))
    watched = surefoot("watch", str(script))
    assert watched.splitlines()[0] == alone.splitlines()[0]
    assert "nothing found by" in " ".join(watched.split())
    last = " ".join(watched.partition("examined:")[2].split())
    assert "whether updates move weights, probes on a copy of Sequential (too little free memory on the device)" in last


def test_an_operator_takes_tensors_of_one_device_as_on_a_gpu():
    found = on_device("""
        x, found = torch.ones(3, device="second"), []
        try:
            torch.dot(x, torch.ones(3))
        except RuntimeError as error:
            found.append(str(error).split(": ")[0])
        found += [(x + torch.tensor(1.0)).tolist(), x[torch.tensor([0])].tolist()]
    """)
    assert found == ["aten::dot", [2.0] * 3, [1.0]]


def test_the_device_has_as_much_memory_as_it_is_given():
    found = on_device("""
        second_device.limit(second_device.counts().live_bytes + 1000)
        x, found = torch.empty(200, device="second"), list(torch.second.mem_get_info())
        try:
            torch.empty(51, device="second")
        except torch.OutOfMemoryError as error:
            found.append(str(error).splitlines()[0])
        del x
        torch.empty(250, device="second")
    """)
    free, total, said = found
    assert (free, said) == (
        200,
        f"the second device is out of memory: 204 bytes asked for, 200 of {total} free",
    )
