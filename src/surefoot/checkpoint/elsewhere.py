"""Elsewhere: checkpoints on another disk. `RUN/checkpoints` may be a link, but only to the folder that you name."""

import os
from pathlib import Path

from surefoot.errors import RunError
from surefoot.plain_files import make_folder, open_own, refusals_of, sync_folder


def place_checkpoints(run: Path, named: str | None) -> None:
    """Refuses a link to a folder other than the one that the recipe names. Makes the link, if there is none yet.

    A run removes old checkpoints. One that came from elsewhere must not do that wherever a link leads.
    """
    link, target = run / "checkpoints", None if named is None else Path(os.path.realpath(named))
    if link.is_symlink():
        _refuse_other(link, target)
        make_folder(Path(os.path.realpath(link)))  # a scratch disk may have been emptied
    elif target is not None:
        _refuse_unfit(link, target)
        make_folder(target)
        os.close(open_own(target / "lock", os.O_RDWR))  # from now on the folder is taken
        with refusals_of(link):
            link.symlink_to(target)
            sync_folder(run)


def _refuse_other(link: Path, target: Path | None) -> None:
    leads = Path(os.path.realpath(link))
    if leads != target:
        named = "no setting names" if target is None else f"is not checkpoints={target}"
        raise RunError(
            f"{link} is a link to {leads}, which {named}; a run writes and removes checkpoints there\n"
            f"if the folder is yours, add checkpoints={leads}; otherwise remove the link, or name another directory"
        )


def _refuse_unfit(link: Path, target: Path) -> None:
    by_hand = f"ln -s {target} {link}"
    if link.exists():
        raise RunError(f"{link} exists, so checkpoints={target} cannot be used; move it: mv {link} {target}; {by_hand}")
    if target.is_relative_to(os.path.realpath(link.parent)):
        raise RunError(f"checkpoints={target} is inside the run; name a folder elsewhere, or leave it out")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(
            f"checkpoints={target} is not an empty folder; name another one, or, if it holds the checkpoints of this "
            f"run, link to it: {by_hand}"
        )
