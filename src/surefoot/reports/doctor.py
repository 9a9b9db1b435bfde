"""A checkup as text: versions, devices, extras, the self-test, and last what to do."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surefoot.records.doctor import Checkup, Extra, SelfTest
from surefoot.units import bytes_text, seconds_text

LITTLE_BYTES = 2**30
"""With less free disk than this, a checkpoint of a small model may not fit."""


def checkup_text(found: Checkup) -> RenderableType:
    """The verdict is the last line, where the eye is when the command ends."""
    devices = [(device.name, "; ".join(filter(None, (device.about, device.bf16)))) for device in found.devices]
    little = "; that is little: checkpoints need room" if found.free_bytes < LITTLE_BYTES else ""
    compiler = found.compiler or "none: `surefoot profile` cannot count torch's own allocations; install g++ or set CXX"
    return Group(
        Text(", ".join(f"{name} {version}" for name, version in found.versions.items()), style="bold"),
        _part("devices", devices),
        _part(
            "tools",
            [
                ("torch", found.torch),
                ("compiler", compiler),
                ("disk", f"{bytes_text(found.free_bytes)} free in {found.folder}{little}"),
            ],
        ),
        _part("extras", [(extra.name, _extra(extra)) for extra in found.extras]),
        _part("self-test", [(test.name, _test(test)) for test in found.tests]),
        _verdict(found),
    )


def _part(title: str, rows: list[tuple[str, str]]) -> RenderableType:
    lines = Table.grid(padding=(0, 2))
    for name, text in rows:
        lines.add_row(name, text)
    return Group(Text(f"\n{title}", style="bold"), Padding(lines, (0, 0, 0, 2), expand=False))


def _extra(extra: Extra) -> str:
    return f"{extra.adds}: {extra.install}" if extra.missing else f"installed; {extra.adds}"


def _test(test: SelfTest) -> str:
    if not test.ran:
        return f"NOT RUN: {test.said}"
    return f"{'ok' if test.passed else 'FAILED'}, {test.said}, {seconds_text(test.seconds)}"


def _verdict(found: Checkup) -> Text:
    failed = [test for test in found.tests if not test.passed]
    if not failed:
        seconds = seconds_text(sum(test.seconds for test in found.tests))
        left = [test.name for test in found.tests if not test.ran]
        but = f"; not run: {', '.join(left)}" if left else ""
        return Text(f"\nall is well: the self-test passed in {seconds}{but}", style="yellow" if left else "green")
    remedies = "".join(f"\n{test.name}: {test.remedy}" for test in failed)
    return Text(f"\n{len(failed)} of {len(found.tests)} parts of the self-test failed{remedies}", style="red")
