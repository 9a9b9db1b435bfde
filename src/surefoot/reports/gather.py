"""Gathers all records of some run directories into one report."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from surefoot.costs.diagnosis import Signs, diagnose, first_of, said_once
from surefoot.costs.layers import MEASUREMENTS, findings_of
from surefoot.costs.ledgers import ledger_of
from surefoot.costs.module_shares import Ceilings, bound, module_shares, operator_seconds, seen_ceilings
from surefoot.errors import RunError
from surefoot.records.codec import read_plain_file, read_record
from surefoot.records.finding import Finding, Findings
from surefoot.records.layers import LayersRow
from surefoot.records.ledger import Ledger
from surefoot.records.log import LogRow
from surefoot.records.out_of_memory import read_out_of_memory
from surefoot.records.plan import Plan, read_plan
from surefoot.records.profile import Profile, read_profile
from surefoot.records.report import HELD_OUT, Ceiling, Curve, Report, Sheet
from surefoot.records.run import Run, read_run, refuse_missing
from surefoot.records.watched import Watched, read_watched
from surefoot.reports.live import metric_text
from surefoot.reports.plan_time import cost_interval, dollars_text
from surefoot.units import bytes_text, count_text, counted, flops_text, seconds_text

POINTS = 2000
"""How many points of a curve are kept: the lowest and the highest of each stretch, so that no spike is lost."""

LAYER_STEPS = 200
"""How many of the steps whose layers were measured are drawn."""


def report_of(*folders: Path, ceilings: Ceilings | None = None, read: Callable[[Path], Run] = read_run) -> Report:
    """One sheet for each directory. `ceilings` are those of the device, if they are known; `read` reads a run."""
    sheets = tuple(_sheet(folder, ceilings, read, alone=len(folders) == 1) for folder in folders)
    return Report(
        answer=" ".join(sheet.headline for sheet in sheets),
        sheets=sheets,
        made_by=f"surefoot {version('surefoot')}",
    )


def _sheet(folder: Path, ceilings: Ceilings | None, read: Callable[[Path], Run], *, alone: bool) -> Sheet:
    run = read(folder) if (folder / "run.json").exists() else None
    plan, profile, watched = read_plan(folder), read_profile(folder), read_watched(folder)
    if run is None and plan is None and profile is None and watched is None:
        refuse_missing(folder)
        raise RunError(f"{folder} is not a run: it holds no run.json, plan.json, profile.json or watched.json")
    rows = tuple(run.rows()) if run is not None else ()
    ledger = ledger_of(plan, profile, run, watched)
    findings = _findings(folder, run, profile, watched, rows, steps=_steps(run, plan))
    sheet = Sheet(
        name=folder.name or str(folder),
        path=str(folder),
        headline="",
        went_as_planned=_went(ledger, run),
        first=first_of(findings.findings),
        facts=_facts(run, plan, profile, watched, rows),
        curves=_curves(rows, run.unit if run is not None else ""),
        ledger=ledger,
        findings=findings,
        tokens=None if run is None else run.token_ledger,
        cost=cost_facts(plan),
        events=tuple(run.happened()) if run is not None else (),
        layers=tuple(_spread(run.layer_rows())) if run is not None else (),
        out_of_memory=read_out_of_memory(folder) if run is not None and run.status == "failed" else None,
        data=None if watched is None else watched.data,
    )
    sheet = _with_usage(sheet, plan, profile, watched)
    sheet = _with_profile(sheet, profile, ceilings)
    sheet = _with_recipe(sheet, run, plan, profile)
    return replace(sheet, headline=_headline(sheet, run, named=sheet.recipe if alone else ""))


def _findings(
    folder: Path,
    run: Run | None,
    profile: Profile | None,
    watched: Watched | None,
    rows: tuple[LogRow, ...],
    *,
    steps: int,
) -> Findings:
    """The findings of the checks, then those that follow from the records."""
    found: list[Finding] = []
    checks: tuple[str, ...] = ()
    if run is not None and run.findings.exists():
        stopped = read_record(Findings, run.findings)
        found, checks = [*stopped.findings], stopped.checks
    if watched is not None:
        found += [each for each in watched.findings.findings if each not in found]
        checks = tuple(dict.fromkeys((*checks, *watched.findings.checks)))
    for signs in _signs(run, profile, watched, rows, steps=steps):
        seen = {each.check for each in found}
        diagnosed = [each for each in diagnose(signs) if each.check not in seen]
        found = [*said_once(found, diagnosed), *diagnosed]
    if run is not None:
        found += findings_of(run.layer_rows())
    failure = watched.findings.failure if watched is not None else ""
    return Findings(recipe=str(folder), checks=checks, findings=tuple(found), failure=failure)


def _steps(run: Run | None, plan: Plan | None) -> int:
    """The steps of the whole run; 0 if they are unknown. A run that is over took as many as it took."""
    if run is not None and run.status == "finished":
        return run.steps
    return 0 if plan is None else plan.steps or 0


def _signs(
    run: Run | None, profile: Profile | None, watched: Watched | None, rows: tuple[LogRow, ...], *, steps: int
) -> list[Signs]:
    found = []
    if profile is not None:
        found.append(replace(signs_of(profile), steps=steps))
    if watched is not None:
        found.append(signs_of_watched(watched))
    if run is not None and rows:
        found.append(Signs(where=run.recipe, rows=rows, device=run.device, steps=steps))
    return found


def signs_of(profile: Profile) -> Signs:
    """The signs of a profile."""
    return Signs(
        where=profile.recipe,
        step_seconds=profile.mean_step_seconds,
        data_seconds=profile.waiting * profile.mean_step_seconds,
        micro_batches=profile.micro_batches,
        counted=profile.counted,
        kept=profile.counted,
        graph_breaks=profile.graph_breaks,
        recompilations=profile.recompilations,
        device=profile.device,
    )


def signs_of_watched(watched: Watched) -> Signs:
    """The signs of a watched script."""
    seconds = sum(watched.step_seconds) / len(watched.step_seconds) if watched.step_seconds else 0.0
    backwards = int(watched.counted.total("backwards/all"))
    # tensors without a graph may be kept on purpose: the losses and predictions of an epoch, for its mean
    holds_graphs = any(each.check in ("kept-losses", "growing-graph") for each in watched.findings.findings)
    return Signs(
        where=watched.script,
        step_seconds=seconds,
        data_seconds=watched.data_seconds or 0.0,
        micro_batches=max(1, backwards),
        counted=watched.counted,
        kept=watched.steady.tally if watched.steady is not None and holds_graphs else Signs("").kept,
        device=watched.device,
    )


def _facts(
    run: Run | None, plan: Plan | None, profile: Profile | None, watched: Watched | None, rows: tuple[LogRow, ...]
) -> dict[str, str]:
    facts: dict[str, str] = {}
    if run is not None:
        facts["status"] = f"{run.status} after {counted(run.steps, 'step')}"
        if run.first_loss is not None and run.last_loss is not None:
            facts["loss"] = f"{run.first_loss:.4f} → {run.last_loss:.4f}"
        if run.evaluation_loss is not None:
            facts["held-out loss"] = f"{run.evaluation_loss:.4f}"
        facts |= {name: metric_text(value) for name, value in run.metrics.items()}
        if run.best_step and run.best_value is not None:
            facts["best"] = f"{metric_text(run.best_value)} at step {run.best_step}"
        facts |= {
            f"{name} {metric}": metric_text(value)
            for name, scores in run.tests.items()
            for metric, value in scores.items()
        }
        facts[f"{run.unit}s"] = count_text(run.tokens)
        facts["time in steps"] = seconds_text(run.seconds)
        if run.seconds:
            facts["speed"] = f"{run.tokens / run.seconds:,.0f} {run.unit}s/s"
            facts["waiting for data"] = f"{sum(row.data_seconds for row in rows) / run.seconds:.1%}"
        facts["parameters"] = count_text(run.parameters)
    if watched is not None:
        facts["parameters"] = count_text(watched.parameters)
        if run is None:
            facts["steps"] = count_text(watched.steps)
        if watched.step_seconds:
            facts["step"] = seconds_text(sum(watched.step_seconds) / len(watched.step_seconds))
        if watched.steady is not None:
            facts["memory peak"] = bytes_text(watched.steady.peak.peak_bytes)
            facts["FLOPs of a step"] = flops_text(watched.steady.tally.total("flops"))
    if profile is not None:
        facts |= _profile_facts(profile)
    elif plan is not None:
        facts["planned peak"] = bytes_text(plan.steady.peak.peak_bytes)
    return facts


def _profile_facts(profile: Profile) -> dict[str, str]:
    seconds, flops = profile.mean_step_seconds, profile.steady.tally.total("flops")
    mfu = "no datasheet" if profile.mfu is None else f"{profile.mfu:.1%}"
    return {
        "parameters": count_text(profile.parameters),
        "profiled step": seconds_text(seconds),
        "memory peak": bytes_text(profile.steady.peak.peak_bytes),
        "FLOPs of a step": flops_text(flops),
        "FLOP/s": f"{flops_text(flops / seconds)}/s",
        "MFU": mfu,
        "waiting in profile": f"{profile.waiting:.1%}",
    }


def _with_usage(sheet: Sheet, plan: Plan | None, profile: Profile | None, watched: Watched | None) -> Sheet:
    """Adds memory over one step: measured if possible, else planned."""
    if profile is not None:
        usage, of = profile.steady, "measured"
    elif watched is not None and watched.steady is not None:
        usage, of = watched.steady, "measured"
    elif plan is not None:
        usage, of = plan.steady, "planned"
    else:
        return sheet
    return replace(sheet, timeline=usage.timeline, timeline_of=of, peak=usage.peak)


def _with_profile(sheet: Sheet, profile: Profile | None, ceilings: Ceilings | None) -> Sheet:
    if profile is None:
        return sheet
    shares = module_shares(profile)
    roof = ceilings or seen_ceilings(shares)
    return replace(
        sheet,
        phase_seconds=dict(profile.traced.under("time")),
        modules=tuple(replace(each, bound=bound(each, roof)) for each in shares),
        operators=operator_seconds(profile),
        ceiling=None if roof is None else Ceiling(roof.flops_per_second, roof.bytes_per_second, roof.source),
    )


def _with_recipe(sheet: Sheet, run: Run | None, plan: Plan | None, profile: Profile | None) -> Sheet:
    of = next((each for each in (run, profile, plan) if each is not None), None)
    if of is None:
        return sheet
    held = run is not None and run.source.exists()
    source = read_plain_file(run.source).decode(errors="replace") if run is not None and held else ""
    environment = {} if run is None else {"device": run.device, **run.environment, "threads": str(run.threads)}
    settings = {} if run is None else run.settings
    return replace(sheet, recipe=of.recipe, knobs=of.knobs, settings=settings, environment=environment, source=source)


def _headline(sheet: Sheet, run: Run | None, *, named: str) -> str:
    """Whether the run went as planned, in one sentence."""
    name = named or sheet.name
    off = sheet.ledger.disagreements
    compared = [entry for entry in sheet.ledger.entries if entry.agrees is not None]
    if run is not None and run.status == "failed":
        why = f": {run.reason.splitlines()[0]}" if run.reason else ""
        message = f"{name} failed after {counted(run.steps, 'step')}{why}"
    elif run is not None and run.status == "stopped":
        message = f"{name} {run.reason}"
    elif not compared:
        message = f"{_so_far(name, run, '; it')} has no plan to compare with"
    elif off:
        worst = max(off, key=lambda entry: abs((entry.difference or 0) / (entry.predicted or 1)))
        differs = f"differs from its plan in {len(off)} of {len(compared)} accounts, most in {worst.account}"
        message = f"{_so_far(name, run)} {differs}"
    else:
        message = f"{_so_far(name, run)} went as planned in all {len(compared)} figures"
    return f"{message.rstrip('. ')}."


def _so_far(name: str, run: Run | None, joint: str = " and so far") -> str:
    """The subject of a verdict. A run that is not finished is called so first."""
    if run is None or run.status not in ("running", "interrupted"):
        return name
    state = "is running," if run.status == "running" else "was interrupted"
    return f"{name} {state} after {counted(run.steps, 'step')}{joint}"


def _went(ledger: Ledger, run: Run | None) -> bool | None:
    if run is not None and run.status in ("failed", "stopped"):
        return False
    compared = [entry for entry in ledger.entries if entry.agrees is not None]
    return not ledger.disagreements if compared else None


def cost_facts(plan: Plan | None) -> dict[str, str]:
    """The planned cost of all steps, if the plan knows the cluster."""
    cost = None if plan is None else plan.cost
    if cost is None:
        return {}
    figures = {
        "time in all": f"{seconds_text(cost.seconds)}{cost_interval(cost)}",
        "device hours": f"{cost.device_hours:,.1f}",
        "dollars": dollars_text(cost).replace(" dollars", "") or None,
        "goodput": f"{cost.goodput:.1%}",
        "failures": f"{cost.failures:.1f}",
        "energy": None if cost.kilowatt_hours is None else f"{cost.kilowatt_hours:,.0f} kWh",
    }
    return {name: told for name, told in figures.items() if told is not None}


def _curves(rows: tuple[LogRow, ...], unit: str) -> tuple[Curve, ...]:
    if not rows:
        return ()
    figures = {
        ("loss", ""): [(row.step, row.loss) for row in rows if row.loss is not None],
        (f"{HELD_OUT}loss", ""): [(row.step, row.evaluation_loss) for row in rows if row.evaluation_loss is not None],
        ("gradient norm", ""): [(row.step, row.grad_norm) for row in rows if row.grad_norm is not None],
        ("learning rate", ""): [(row.step, row.lr) for row in rows],
        ("throughput", f"{unit}s/s"): [(row.step, row.tokens / row.seconds) for row in rows if row.seconds],
        ("waiting for data", "share"): [(row.step, row.data_seconds / row.seconds) for row in rows if row.seconds],
        ("memory held", "bytes"): [(row.step, float(row.memory_bytes)) for row in rows if row.memory_bytes],
    }
    for metric in dict.fromkeys(name for row in rows for name in (*row.metrics, *row.train_metrics)):
        for prefix, of in (("", "train_metrics"), (HELD_OUT, "metrics")):
            points = [(row.step, getattr(row, of)[metric]) for row in rows if metric in getattr(row, of)]
            figures[f"{prefix}{metric}", ""] = [point for point in points if math.isfinite(point[1])]
    return tuple(
        Curve(name, unit, *map(tuple, zip(*thinned(points), strict=True)))
        for (name, unit), points in figures.items()
        if points
    )


def _spread(rows: list[LayersRow], most: int = LAYER_STEPS) -> list[LayersRow]:
    """At most `most` rows, evenly spread, and always the last few, which verdicts are made from."""
    if len(rows) <= most:
        return rows
    kept = {round(at * (len(rows) - 1) / (most - 1)) for at in range(most)}
    return [rows[at] for at in sorted(kept | set(range(len(rows) - MEASUREMENTS, len(rows))))]


def thinned(points: list[tuple[int, float]], most: int = POINTS) -> list[tuple[int, float]]:
    """At most `most` of many points: the lowest and the highest of each stretch, the first and the last."""
    if len(points) <= most:
        return points
    stretches = most // 2 - 1
    kept = {0, len(points) - 1}
    for number in range(stretches):
        begin, end = (len(points) * each // stretches for each in (number, number + 1))
        kept |= {pick(range(begin, end), key=lambda index: points[index][1]) for pick in (min, max)}
    return [points[index] for index in sorted(kept)]
