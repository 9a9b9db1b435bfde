"""Models of the Hugging Face hub by name: pinned to a commit, in the hub's own cache, and never a line of their code.

`ORG/NAME` or `ORG/NAME@REVISION` stands for a model of the hub, if there is no such folder here. Only `WORDS`,
`config.json` and safetensors are downloaded: no pickle and no Python file. A file that the cache has is not asked for
again, so with `HF_HUB_OFFLINE=1`, or without a network, what was once downloaded goes on working.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any

from surefoot.checkpoint.consolidate import INDEX
from surefoot.errors import RecipeError, installing
from surefoot.plain_files import write_whole
from surefoot.recipe.ranges import Settled
from surefoot.records.codec import parse
from surefoot.units import bytes_text, counted

CONFIG = ("config.json",)
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "preprocessor_config.json",
)
"""What else stands in a Hugging Face folder: data that goes with the weights unchanged."""
WORDS = (*TOKENIZER_FILES, "generation_config.json", "README.md", "LICENSE*")
WEIGHTS = (*CONFIG, *WORDS, "*.safetensors.index.json", "*.safetensors")
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = re.compile(rf"({_PART}/{_PART})(?:@([A-Za-z0-9._/-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHOWN = 12


@dataclass(frozen=True)
class File:
    """A file of a repository. `sha256` is known of large files only."""

    name: str
    size: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Repository:
    """What the hub says of a repository at one commit. Without the hub, `files` is what the cache has."""

    name: str
    commit: str
    licence: str = ""
    files: tuple[File, ...] = ()
    unreached: str = ""
    """Why the hub did not answer; empty if it did."""

    @property
    def pinned(self) -> str:
        return f"{self.name}@{self.commit}"

    def path(self, file: str) -> Path | None:
        """Where the cache has a file; None if it does not."""
        found = _library().try_to_load_from_cache(self.name, file, revision=self.commit)
        return Path(found) if isinstance(found, str) else None

    def matching(self, patterns: tuple[str, ...]) -> list[File]:
        """The files of the repository's own folder that the patterns name. The index of weights comes first."""
        found = [each for each in self.files if any(fnmatch(each.name, one) for one in patterns)]
        return sorted((each for each in found if "/" not in each.name), key=lambda each: each.name.endswith("tensors"))


def is_of_hub(name: str) -> bool:
    """Whether a text is a model of the hub at a revision, as `pinned` returns it. A folder of that name comes first."""
    found = _NAME.fullmatch(name)
    return found is not None and found[2] is not None and not Path(name).exists()


def pinned(name: str) -> str:
    """`ORG/NAME@COMMIT` of a model of the hub: what its branch or tag is now. Any other text is returned as it is.

    A text is not taken for a model if it is a folder here, or if it would stand in one.
    """
    found = _NAME.fullmatch(name)
    if found is None or Path(name).exists() or (found[2] is None and Path(name).parent.exists()):
        return name
    return name if _COMMIT.fullmatch(found[2] or "") else repository(name).pinned


Model = Annotated[str, Settled(pinned)]
"""The hint of a knob that takes a folder or a model of the hub."""


def said(name: str | None) -> str:
    """One line on a model of the hub: commit, licence, and how much of its weights is still to be downloaded."""
    if name is None or not is_of_hub(name):
        return ""
    found = repository(name)
    weights = found.matching(("*.safetensors",))
    absent = [each for each in weights if found.path(each.name) is None]
    size = bytes_text(sum(each.size for each in absent))
    left = f"{size} in {counted(len(absent), 'file')}, to be downloaded for training" if absent else "in the cache"
    where = f"the hub did not answer ({found.unreached}), so the cache counts; " if found.unreached else ""
    what = f"weights {left}" if weights else "no safetensors"
    return f"{found.name}: {where}commit {found.commit[:_SHOWN]}, licence {licence_of(name) or 'not stated'}, {what}"


def licence_of(name: str) -> str:
    """The licence that the repository states, by the hub or by the README in the cache; empty if neither does."""
    found = repository(name)
    card = found.path("README.md")
    if found.licence or card is None:
        return found.licence
    try:
        return str(_library().ModelCard.load(card).data.to_dict().get("license") or "")
    except Exception:  # a card is anybody's text
        return ""


def folder_of(name: str, patterns: tuple[str, ...] = CONFIG) -> str:
    """The folder of a model: a local one as it is, else the cache's with these files, downloaded if they are absent."""
    if not is_of_hub(name):
        return name
    found = repository(name)
    if patterns == WEIGHTS:
        _refuse_without_weights(found)
        _refuse_full_disk(found)
    if not found.matching(CONFIG):
        raise RecipeError(f"{found.name} has no config.json at commit {found.commit[:_SHOWN]}{_another_kind(found)}")
    return str([_download(found, each) for each in found.matching((*patterns, *CONFIG))][-1].parent)


# ---------------------------------------------------------------------------------------- what the hub says


def repository(name: str) -> Repository:
    """The repository at the commit that the name stands for. The hub is not asked of one that the cache has whole."""
    place, _, revision = name.partition("@")
    if _COMMIT.fullmatch(revision):
        cached = _from_cache(place, revision, "")
        if cached is not None and _has_weights(cached):
            return cached
    return _asked(place, revision or "main")


@functools.cache
def _asked(name: str, revision: str) -> Repository:
    """Asks once in a process, so that a branch which moves meanwhile changes nothing."""
    library = _library()
    from huggingface_hub import errors

    try:
        found = library.HfApi().model_info(name, revision=revision, files_metadata=True, timeout=20)
    except errors.GatedRepoError as error:
        raise RecipeError(
            f"{name} is gated: accept its terms on its page at the hub, then log in with `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise RecipeError(
            f"there is no folder {name}, and the hub has no model of that name, or a private one: check its spelling"
        ) from error
    except errors.RevisionNotFoundError as error:
        cached = _from_cache(name, revision, "it no longer has that revision")
        if cached is not None:
            return cached
        raise RecipeError(
            f"the hub has {name}, but no revision {revision}: it may have been removed; name another, {name}@REVISION"
        ) from error
    except Exception as error:  # no network, offline mode, or a hub that is out of order
        why = " ".join(str(error).split())[:120] or type(error).__name__
        cached = _from_cache(name, revision, why)
        if cached is not None:
            return cached
        raise RecipeError(
            f"there is no folder {name}, the hub did not answer ({why}), and its cache has no {name} at {revision}"
        ) from error
    if not _COMMIT.fullmatch(revision):
        _remember(name, revision, found.sha)
    card = found.card_data
    listed = sorted(found.siblings or (), key=lambda each: each.rfilename)
    return Repository(
        name,
        found.sha,
        str((card.to_dict() if card else {}).get("license") or ""),
        tuple(File(each.rfilename, each.size or 0, each.lfs.sha256 if each.lfs else "") for each in listed),
    )


def _remember(name: str, revision: str, commit: str) -> None:
    """Keeps what a branch was, where huggingface_hub does and looks for it without a network."""
    from huggingface_hub.constants import HF_HUB_CACHE

    place = Path(HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "refs" / revision
    with suppress(OSError):  # a cache that may only be read
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, commit, shared=True)


def _from_cache(name: str, revision: str, why: str) -> Repository | None:
    """What the cache has of a revision; None if it has nothing."""
    config = _library().try_to_load_from_cache(name, "config.json", revision=revision)
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    files = tuple(File(each.name, each.stat().st_size) for each in sorted(folder.iterdir()) if each.is_file())
    return Repository(name, folder.name, files=files, unreached=why)


def _has_weights(cached: Repository) -> bool:
    """Whether a folder of the cache holds all weights: the only file, or each one that the index names."""
    index = cached.path(INDEX)
    held = {each.name for each in cached.files}
    if index is None:
        return "model.safetensors" in held
    try:
        return set(parse(index.read_bytes())["weight_map"].values()) <= held
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


# ---------------------------------------------------------------------------------------- what is downloaded


def _refuse_without_weights(found: Repository) -> None:
    weights = found.matching(("*.safetensors",))
    if found.unreached and not _has_weights(found):
        raise RecipeError(
            f"the cache has only a part of {found.name}, and the hub did not answer ({found.unreached}); run the "
            "command again with a network"
        )
    if not weights:
        raise RecipeError(f"{found.name} holds no safetensors at commit {found.commit[:_SHOWN]}{_another_kind(found)}")


def _another_kind(found: Repository) -> str:
    """What the repository holds in place of a model that can be trained."""
    names = [each.name for each in found.files]
    if pickle := next((each for each in names if each.endswith((".bin", ".pt", ".pth", ".ckpt", ".pkl"))), None):
        return (
            f"; {pickle} may be a pickle, which can execute code, so surefoot does not read it: name a revision with "
            "safetensors, such as one that the hub's own conversion proposes (refs/pr/N)"
        )
    if "adapter_config.json" in names:
        return "; it holds an adapter: name the model that the adapter was made for"
    if any(each.endswith(".gguf") for each in names):
        return "; it holds GGUF, which cannot be trained: name the model that it was made from"
    return ""


def _refuse_full_disk(found: Repository) -> None:
    from huggingface_hub.constants import HF_HUB_CACHE

    place = next(each for each in (Path(HF_HUB_CACHE), *Path(HF_HUB_CACHE).parents) if each.exists())
    free = shutil.disk_usage(place).free
    needed = sum(each.size for each in found.matching(WEIGHTS) if found.path(each.name) is None)
    if needed > free:
        raise RecipeError(
            f"{found.name} takes {bytes_text(needed)}, and {place} has {bytes_text(free)} free: make room, or set "
            "HF_HUB_CACHE to a folder on another disk"
        )


def _download(found: Repository, file: File) -> Path:
    """The file in the cache. huggingface_hub gives it its name only when it is whole; what it holds is hashed here."""
    path = found.path(file.name)
    if path is not None:
        return _sound(found, file, path)
    try:
        with _bars(file.name.endswith(".safetensors")):
            made = Path(_library().hf_hub_download(found.name, file.name, revision=found.commit))
    except Exception as error:  # of the network, the hub, the disk
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise RecipeError(
            f"{file.name} of {found.name} was not downloaded ({why}); run the command again: it goes on where it ended"
        ) from error
    return _sound(found, file, made, hashes=True)


def _sound(found: Repository, file: File, path: Path, *, hashes: bool = False) -> Path:
    """The path, if its file is what the hub says. Otherwise it is removed, so that nothing takes it for whole."""
    size = path.stat().st_size
    wrong = f"{size:,} bytes in place of {file.size:,}" if file.size and size != file.size else ""
    if hashes and file.sha256 and not wrong:
        with path.open("rb") as opened:
            found_hash = _sha256(opened)
        wrong = "" if found_hash == file.sha256 else f"the hash {found_hash} in place of {file.sha256}"
    if wrong:
        with suppress(OSError):
            path.resolve().unlink()
            path.unlink()
        raise RecipeError(f"{file.name} of {found.name} had {wrong}, so it was removed; run the command again")
    return path


def _sha256(opened: Any) -> str:
    made = hashlib.sha256()
    while block := opened.read(1 << 20):
        made.update(block)
    return made.hexdigest()


@contextmanager
def _bars(on: bool) -> Iterator[None]:
    """Leaves huggingface_hub's bars to large files."""
    utils = _library().utils
    off = utils.are_progress_bars_disabled()
    if not on:
        utils.disable_progress_bars()
    try:
        yield
    finally:
        if not off:
            utils.enable_progress_bars()


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise RecipeError(
            f"a model by its name needs huggingface_hub: {installing('hub', 'huggingface_hub')}; or name a folder"
        ) from error
    return huggingface_hub
