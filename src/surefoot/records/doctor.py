"""What `surefoot doctor` found: versions, devices, tools, optional extras, and how the self-test went."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A kind of device, and what torch can do with it here."""

    name: str
    about: str
    bf16: str = ""


@dataclass(frozen=True)
class Extra:
    """An optional extra of surefoot: what it adds, which of its packages are missing, and how to install them."""

    name: str
    adds: str
    installed: tuple[str, ...]
    missing: tuple[str, ...]
    install: str


@dataclass(frozen=True)
class SelfTest:
    """One part of the self-test. If it failed, `remedy` says what to do. One that did not run has not failed."""

    name: str
    passed: bool
    said: str
    seconds: float
    remedy: str = ""
    ran: bool = True


@dataclass(frozen=True)
class Checkup:
    """Everything that `surefoot doctor` reports."""

    versions: dict[str, str]
    devices: tuple[Device, ...]
    compiler: str | None
    folder: str
    free_bytes: int
    extras: tuple[Extra, ...]
    tests: tuple[SelfTest, ...]
    torch: str = ""
    """Whether surefoot was tried with this torch."""

    @property
    def is_well(self) -> bool:
        """Whether every part of the self-test that ran has passed."""
        return all(test.passed for test in self.tests)
