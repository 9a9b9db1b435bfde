"""`python -m tests.second_device ...` is `surefoot ...` on a machine whose accelerator is the second device.

`SECOND_BYTES` is the memory that it has.
"""

import os

from surefoot.cli.main import main
from tests import second_device

second_device.register()
if "SECOND_BYTES" in os.environ:
    second_device.limit(int(os.environ["SECOND_BYTES"]))
main()
