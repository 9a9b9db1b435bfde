"""Where the processes of a training stand, and what they wait for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """One function of a stack."""

    function: str
    file: str
    line: int
    source: str = ""
    """The text of the line, if the file is here."""
    user: bool = False
    """Whether it is the user's own code: neither of Python, nor installed, nor surefoot's."""


def _user_line(frames: tuple[Frame, ...]) -> Frame | None:
    return next((each for each in frames if each.user), None)


@dataclass(frozen=True)
class Standing:
    """One process: where its main thread stands."""

    pid: int
    role: str
    """`rank 1`, `loader worker`, `main`, `child` or `launcher`."""
    state: str
    """`still`, `polling` (it sleeps again and again on one line), `computing`, `moving`, `stopped` or `ended`."""
    waits_in: str
    """`a collective`, `backward`, `the data loader`, `a lock`, ...; empty if it waits for nothing that is known."""
    call: str
    """The function that waits, such as `all_reduce`."""
    frames: tuple[Frame, ...]
    """Innermost first."""
    rank: int | None = None
    parent: int | None = None
    """The pid of the process that started it, if that is one of these."""
    threads: tuple["Thread", ...] = ()
    """Other threads that stand in the user's own code."""

    @property
    def own_frames(self) -> tuple[Frame, ...]:
        """The user's own code alone."""
        return tuple(each for each in self.frames if each.user)

    @property
    def at(self) -> Frame | None:
        """The innermost line of the user's own code."""
        return _user_line(self.frames)


@dataclass(frozen=True)
class Thread:
    """Another thread of a process."""

    name: str
    waits_in: str
    frames: tuple[Frame, ...]

    @property
    def at(self) -> Frame | None:
        """The innermost line of the user's own code."""
        return _user_line(self.frames)


@dataclass(frozen=True)
class Stuck:
    """All processes of one training, and why they do not go on."""

    of: str
    stuck: bool
    cause: str
    remedy: str
    processes: tuple[Standing, ...]
    seconds: float
    """How long they were looked at."""
