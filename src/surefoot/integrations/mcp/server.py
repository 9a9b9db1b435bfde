"""The server: offers the tools over stdin and stdout, with the official SDK of the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from surefoot.errors import MissingPackage, SurefootError, installing
from surefoot.integrations.mcp.bounds import Bounds
from surefoot.integrations.mcp.commands import Commands
from surefoot.integrations.mcp.tools import Tools

_P = ParamSpec("_P")
_T = TypeVar("_T")


def serve(bounds: Bounds) -> None:
    """Answers until stdin is closed."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp_types import ToolAnnotations
    except ImportError as error:
        hint = installing("mcp", "mcp")
        raise MissingPackage(f"surefoot mcp needs the SDK of the protocol: {hint} ({error})") from error

    def told(tool: Callable[_P, Awaitable[_T]]) -> Callable[_P, Awaitable[_T]]:
        """The same tool. What surefoot refuses is an answer; the SDK would hide the text of any other error."""

        @wraps(tool)
        async def answer(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            try:
                return await tool(*args, **kwargs)
            except SurefootError as error:
                raise ToolError(str(error)) from error

        return answer

    tools = Tools(bounds, Commands(bounds))
    server = MCPServer("surefoot", instructions=_instructions(bounds), log_level="WARNING")
    for tool in (tools.plan, tools.watch, tools.look, tools.compare):
        server.tool(annotations=ToolAnnotations(read_only_hint=False, open_world_hint=False))(told(tool))
    server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))(told(tools.explain))
    server.run()


def _instructions(bounds: Bounds) -> str:
    return (
        f"Paths are relative to {bounds.folder}; nothing outside is run. A call ends after {bounds.seconds:g} seconds; "
        f"watch takes at most {bounds.steps} updates. Ask plan before a training is started, and watch after its "
        "script was written or changed: a falling loss does not show that it learns."
    )
