"""A call passes other arguments than the function takes."""

import re

from surefoot.records.explanation import Cause, Raised

_COUNT = re.compile(
    r"missing \d+ required|takes .* positional argument|unexpected keyword argument|multiple values for argument"
)


def cause(raised: Raised) -> Cause | None:
    if raised.error != "TypeError" or not _COUNT.search(raised.message):
        return None
    name = raised.message.partition("()")[0]
    if not raised.signature:
        return None
    missing = re.findall(r"'(\w+)'", raised.message.partition("missing")[2])
    takes = f"`{name}` takes {raised.signature}"
    said = (
        f"{takes}. This call passes no {', '.join(f'`{each}`' for each in missing)}."
        if missing
        else (f"{takes}, and this call passes others: {raised.message.partition('()')[2].strip()}.")
    )
    remedy = "Pass what the function takes, or change its parameters."
    return Cause(said, remedy, (raised.callee,) if raised.callee else ())
