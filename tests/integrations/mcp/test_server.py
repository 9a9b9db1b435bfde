"""The server, asked through the client of the official SDK: answers, and what it refuses."""

import asyncio
import json
import os
import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.waiting import has_ended, text_in, until

pytest.importorskip("mcp_types", reason="the server needs version 2 of the SDK of the Model Context Protocol")
from mcp import ClientSession, StdioServerParameters, stdio_client

ROOT = Path(__file__).parents[3]
NOISY = """
import os, torch
from torch import nn
os.write(1, b'{"jsonrpc": "2.0", "id": 1, "result": {}}\\n')
print("Content-Length: 1")
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(30):
    x = torch.randn(16, 8, device=device)
    loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ENDLESS = """
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("pid").write_text(str(child.pid))
while True:
    pass
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The scripts of the README, one that writes to its stdout past Python, and an endless one."""
    folder = tmp_path_factory.mktemp("mcp") / "inside"
    folder.mkdir()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, code in re.findall(r'```python title="(.+?)"\n(.*?)```', text, re.DOTALL):
        (folder / name).write_text(code, encoding="utf-8")
    (folder / "noisy.py").write_text(NOISY)
    (folder / "endless.py").write_text(ENDLESS)
    (folder.parent / "outside.py").write_text("open('ran', 'w')\n")
    (folder / "link.py").symlink_to(folder.parent / "outside.py")
    return folder


@asynccontextmanager
async def session(folder: Path, *limits: str):
    passed = {name: os.environ[name] for name in ("PYTHONPATH", "OMP_NUM_THREADS") if name in os.environ}
    start = StdioServerParameters(
        command=sys.executable, args=["-m", "surefoot", "mcp", *limits], cwd=folder, env=passed
    )
    with open(os.devnull, "w") as nowhere:
        async with stdio_client(start, errlog=nowhere) as streams, ClientSession(*streams) as found:
            await found.initialize()
            yield found


async def answered(found: ClientSession, tool: str, **arguments):
    answer = await found.call_tool(tool, arguments)
    assert not answer.is_error, answer.content[0].text
    assert len(json.dumps(answer.structured_content)) <= 2048
    return answer.structured_content


async def refused(found: ClientSession, tool: str, **arguments) -> str:
    answer = await found.call_tool(tool, arguments)
    assert answer.is_error
    return answer.content[0].text


def test_the_tools_answer(folder):
    async def ask():
        async with session(folder, "--seconds", "300") as found:
            tools = await found.list_tools()
            assert {each.name for each in tools.tools} == {"plan", "watch", "look", "explain", "compare"}
            assert all(each.description and each.output_schema for each in tools.tools)
            watched = await answered(found, "watch", target="house_prices.py")
            assert [(each["check"], each["where"]) for each in watched["findings"]] == [
                ("broadcast-loss", "house_prices.py:18")
            ]
            assert watched["updates"] == 20
            sly = ["--sarif", "made", "--html=made", "--graph=made"]
            script = await answered(found, "plan", target="noisy.py", arguments=sly, on="rtx-4090")
            assert script["fits"] is True
            assert script["device"] == "rtx-4090"
            recipe = await answered(found, "plan", target="reviews.py:reviews", arguments=["hidden=32"], on="h100-sxm")
            assert (recipe["parameters"], recipe["steps"]) == (4 * 32 + 32 + 32 * 2 + 2, 100)
            looked = await answered(found, "look", target="noisy.py", arguments=sly, tensor="0.weight")
            assert [each["kind"] for each in looked["modules"]] == ["Sequential", "Linear", "ReLU", "Linear"]
            assert looked["tensor"]["form"] == "64x8 float32"

    asyncio.run(ask())
    assert not (folder / "made").exists()


def test_what_leads_outside_is_refused_and_not_run(folder):
    async def ask():
        async with session(folder, "--steps", "30") as found:
            for target in ("../outside.py", "link.py", str(folder.parent / "outside.py")):
                for tool in ("watch", "plan", "look"):
                    assert "leads out of" in await refused(found, tool, target=target)
            assert "leads out of" in await refused(found, "explain", target="/etc/passwd")
            assert "leads out of" in await refused(found, "compare", first="..", second=".")
            assert "between 1 and 30" in await refused(found, "watch", target="noisy.py", steps=31)
            assert "no knob" in await refused(found, "plan", target="gpt", arguments=["--html=made.html"])
            assert "no device" in await refused(found, "plan", target="gpt", on="--trust-run")

    asyncio.run(ask())
    assert not (folder / "ran").exists()
    assert not (folder / "made.html").exists()


def test_an_endless_script_ends_at_the_limit_and_the_server_goes_on(folder):
    async def ask():
        async with session(folder, "--seconds", "30") as found:
            said = await refused(found, "watch", target="endless.py", steps=3)
            assert "ended after 30 seconds" in said
            assert "leads out of" in await refused(found, "watch", target="link.py")

    asyncio.run(ask())
    if (
        folder / "pid"
    ).exists():  # on a busy machine the limit comes before the script; tests of limited.py wait for it
        pid = int(text_in(folder / "pid"))
        until(lambda: has_ended(pid))


def test_a_client_that_leaves_ends_what_it_had_asked_for(folder):
    async def ask():
        (folder / "pid").unlink(missing_ok=True)
        async with session(folder, "--seconds", "600") as found:
            asked = asyncio.ensure_future(found.call_tool("watch", {"target": "endless.py"}))
            await asyncio.to_thread(text_in, folder / "pid")  # the loop is not held up
            asked.cancel()

    asyncio.run(ask())
    pid = int(text_in(folder / "pid"))
    until(lambda: has_ended(pid))


def test_reading_a_run_executes_nothing(folder, tmp_path):
    """Modules beside a run stand in for none of surefoot's own imports."""
    (tmp_path / "run").mkdir()
    for name in ("typer", "rich", "json", "torch", "surefoot"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\nraise SystemExit(9)\n")

    async def ask():
        async with session(folder.parent) as found:
            assert "leads out of" in await refused(found, "explain", target=str(tmp_path / "run"))
        # The server itself is started as an assistant would: by the command, which looks in no folder.
        from surefoot.integrations.mcp.bounds import Bounds
        from surefoot.integrations.mcp.commands import Commands
        from surefoot.integrations.mcp.tools import Tools

        bounds = Bounds(tmp_path.resolve())
        with pytest.raises(Exception, match="did not end out of memory"):
            await Tools(bounds, Commands(bounds)).explain("run")

    asyncio.run(ask())
    assert not (tmp_path / "ran").exists()
