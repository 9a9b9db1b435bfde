"""The page of devices is made from their records, and the records name no place."""

import re
import socket
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"
RECORDS = sorted((BENCH / "devices").glob("*.json"))


def test_the_page_is_made_from_the_records(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import devices

    assert RECORDS
    if request.config.getoption("--update-golden"):
        devices.PAGE.write_text(devices.page(), encoding="utf-8")
    assert devices.PAGE.read_text(encoding="utf-8") == devices.page(), "run python bench/devices.py"


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
def test_a_record_names_no_path_and_no_host(file: Path):
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|usr|opt|mnt|work|workspace|Users)/", text)
    assert socket.gethostname() not in text
