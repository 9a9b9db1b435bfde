"""The cause of an out-of-memory error, by what held the memory, and what to change."""

from __future__ import annotations

from surefoot.records.explanation import Cause
from surefoot.records.out_of_memory import OutOfMemory, Setting
from surefoot.units import bytes_text, counted, knobs_text

_MUCH = 0.2
"""The share of the memory from which tensors of earlier steps are the cause."""
_HALF = 0.5
_FORWARDS = 3
"""From how many forwards without a backward on they are the cause."""
_STATE = ("parameters", "gradients", "optimizer", "averages")
_STEP = ("activations", "temporary", "inputs")


def cause_of(record: OutOfMemory) -> Cause:
    """The first cause that fits. A setting that fits is the remedy, if one is known."""
    for find in (_kept, _one_tensor, _forwards, _batch, _state, _activations):
        if (cause := find(record)) is not None:
            named = _named(record)
            is_own = find in (_kept, _forwards, _one_tensor)  # a bug, and no matter of settings
            remedy = cause.remedy if is_own or not named else f"{named} {cause.remedy if find is _batch else ''}"
            return Cause(cause.said, remedy.strip(), cause.places)
    return Cause(
        "What held the memory is not known.", _named(record) or "Use a smaller batch, or recompute activations."
    )


def setting_text(setting: Setting) -> str:
    """`micro_batch_size=4 recompute=full`, or `--batch-size 4`; of a setting that changes nothing: as it is."""
    options = [name if value is True else f"{name} {value}" for name, value in setting.knobs.items() if name[0] == "-"]
    return " ".join(options) or knobs_text(setting.knobs) or "the recipe as it is"


def _named(record: OutOfMemory) -> str:
    if not record.fits:
        return ""
    first, beyond = record.fits[0], record.beyond
    more = "" if beyond is None else f"; {setting_text(beyond)} does not, {bytes_text(beyond.planned_bytes)}"
    return f"`{setting_text(first)}` fits: {bytes_text(first.planned_bytes)} planned{more}."


def _of(record: OutOfMemory, *accounts: str) -> int:
    held = record.by_account()
    return sum(held.get(name, 0) for name in accounts)


def _whole(record: OutOfMemory) -> int:
    return record.live_bytes or sum(record.by_account().values())


def _kept(record: OutOfMemory) -> Cause | None:
    kept = [each for each in record.largest if each.kept_steps > 1]
    size = sum(each.bytes for each in kept)
    if not kept or size < _MUCH * _whole(record):
        return None
    keeper = record.keepers[0] if record.keepers else None
    who = "something keeps them" if keeper is None else f"`{keeper.name}` keeps {keeper.count} tensors of them"
    graph = (
        f" The backward of line {record.retained.line} keeps the graph (`retain_graph` or `create_graph`): what refers "
        "to its loss keeps all activations of that step."
        if record.retained is not None
        else ""
    )
    steps = counted(kept[0].kept_steps, "earlier step")
    said = f"{bytes_text(size)} are tensors of {steps}: {who}, and each step adds more."
    remedy = (
        "Store numbers, not tensors with a graph: `loss.item()` or `.detach()` where the loop adds to a list or sum."
        if keeper is None
        else f"Do not store these tensors in `{keeper.name}`: store `.item()` of a loss, or what you need of a tensor. "
        f"Or empty `{keeper.name}` in each step."
    )
    lines = [*([record.retained] if record.retained else []), *(keeper.places if keeper else ())]
    lines += [each.place for each in kept[:3] if each.place is not None]
    return Cause(said + graph, remedy, tuple(dict.fromkeys(lines)))


def _one_tensor(record: OutOfMemory) -> Cause | None:
    asked, room = record.asked_bytes, record.limit_bytes or _whole(record)
    if asked is None or not room or asked < _HALF * room or record.batch.is_larger:
        return None
    said = f"One operation asks for {bytes_text(asked)}, {asked / room:.0%} of {bytes_text(room)}, for one tensor."
    remedy = "Compare the shapes on this line: a broadcast of (n, 1) with (n,) makes (n, n). Or work in parts."
    return Cause(said, _named(record) or remedy, () if record.place is None else (record.place,))


def _forwards(record: OutOfMemory) -> Cause | None:
    if record.forwards < _FORWARDS or _of(record, "activations") < _HALF * _whole(record):
        return None
    said = (
        f"{record.forwards} forwards ran with gradients and no backward yet: their activations, "
        f"{bytes_text(_of(record, 'activations'))}, are all kept."
    )
    remedy = "In an evaluation use `torch.no_grad()`. In a training call `backward` more often."
    return Cause(said, remedy, record.forward_places)


def _batch(record: OutOfMemory) -> Cause | None:
    batch = record.batch
    if not batch.is_larger:
        return None
    now, usual = ", ".join(batch.shapes), ", ".join(batch.usual)
    peak = "" if batch.usual_peak_bytes is None else f", which peaked at {bytes_text(batch.usual_peak_bytes)}"
    if batch.grows:
        said = f"The batches grow: {usual} at first{peak}; {now} now."
        return Cause(said, "Limit the size that this line asks for.", batch.made)
    said = f"This batch is {now}. Most of the {counted(batch.steps, 'step')} before had {usual}{peak}."
    return Cause(said, "Cut or split what is longer than usual, or put samples of similar length together.", batch.made)


def _state(record: OutOfMemory) -> Cause | None:
    size = _of(record, *_STATE)
    if size < _HALF * _whole(record) or size < _of(record, *_STEP):
        return None
    said = f"Parameters, gradients and optimizer states take {bytes_text(size)} of {bytes_text(_whole(record))}."
    remedy = "A smaller batch does not change that: use a smaller model, or a leaner optimizer."
    return Cause(said, remedy)


def _activations(record: OutOfMemory) -> Cause | None:
    size = _of(record, *_STEP)
    if not size or not record.followed:
        return None
    said = f"Activations and other tensors of this step take {bytes_text(size)} of {bytes_text(_whole(record))}."
    return Cause(said, "Use a smaller batch, or recompute activations (`torch.utils.checkpoint`).")
