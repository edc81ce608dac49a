"""MPS801 to MPS805: how a DataLoader's settings work on a Mac, where worker processes are spawned, not forked."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from anymps._text import plural
from anymps.findings._endings import NOT_SENT, SPAWNING, ending
from anymps.findings._loop import count_of, notes_by_line
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings.advice import AT_TOP_LEVEL, CPU_DATA_SET, MAIN_GUARD, made_at
from anymps.findings.edits import Safety
from anymps.record import Noted, Recording
from anymps.source import CallEdit, Guard, LineEdit, Place, Rewritten, Splice, argument, last_name, unpacks

_SPAWN: Final = "macOS spawns workers (the default there since Python 3.8): each is a new Python process"
_PROCESSES: Final = (
    "docs.python.org, multiprocessing, contexts and start methods (Python 3.8 and later); "
    "torch/utils/data/dataloader.py, torch 2.7 to 2.15"
)

# The error of a program whose workers did not start: torch 2.7 to 2.15.
_DIED: Final = re.compile(r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly")


def _spawns(loader: Noted) -> bool:
    workers = loader.facts.get("workers")
    return isinstance(workers, int) and workers > 0 and loader.facts.get("start_method", "") in SPAWNING


def ended_by_workers(recording: Recording) -> bool:
    """Whether the run ended at a DataLoader whose workers could not be started as macOS starts them."""
    ended = ending(recording)
    return any(
        loader.occurrence.site.file_line == ended.site.file_line
        and _spawns(loader)
        and bool(
            (loader.facts.get("guarded") is False and _DIED.search(ended.message))
            or (loader.facts.get("unpicklable") and NOT_SENT.search(ended.message))
        )
        for loader in recording.noted("loader")
    )


_ORDER = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory")


def pinned_without_mps(place: Place) -> Rewritten | None:
    """`pin_memory=True` where there is no mps: everywhere else it is as it was."""
    torch = place.names.torch
    for call in place.code.calls:
        given = argument(call, "pin_memory", _ORDER if last_name(call).endswith("DataLoader") else ())
        if torch and isinstance(given, ast.Constant) and given.value is True:
            pinned = f"not {torch}.backends.mps.is_available()"
            return Rewritten((Splice(*place.code.span(given), pinned),), shown=place.code.span(call))
    return None


def persistent_workers(place: Place) -> Rewritten | None:
    """Workers that stay from one epoch to the next. Without workers a DataLoader refuses that they stay."""
    for call in place.code.calls:
        if not last_name(call).endswith("DataLoader") or unpacks(call):
            continue
        workers = argument(call, "num_workers", _ORDER)
        optional = isinstance(workers, (ast.Name, ast.Attribute, ast.Subscript))
        value = f"{ast.unparse(workers)} > 0" if workers is not None and optional else "True"
        edit = CallEdit((last_name(call),), set=(("persistent_workers", value),))
        if (changed := edit.rewrite(place)) is not None:
            return changed
    return None


PINNED = Rule(
    id="MPS801",
    title="pin_memory=True has no effect on mps",
    severity=Severity.INFO,
    why=(
        "When mps is the accelerator a DataLoader warns and pins nothing, in every release from 2.7 to 2.15; torch "
        "2.14 and later can pin memory, but the DataLoader does not."
    ),
    fix="Leave `pin_memory` out, or set it only if mps is not available.",
    edit=LineEdit(pinned_without_mps),
    safety=Safety.SAFE,
    source="torch/utils/data/dataloader.py (_BaseDataLoaderIter), torch 2.7 to 2.15; pytorch issue #86060",
    example=Example(
        bad="""
            from torch.utils.data import DataLoader

            loader = DataLoader(torch.rand(8, 4), batch_size=4, pin_memory=True)
            for x in loader:
                y = x.to(device) + 1
        """,
        better={", pin_memory=True": ""},
    ),
)

UNGUARDED = Rule(
    id="MPS802",
    title='Workers without `if __name__ == "__main__"`',
    stops=True,
    explains=ended_by_workers,
    why=(
        f"{_SPAWN} that imports the script again. Without the guard it reaches the loader too, and raises "
        "RuntimeError: an attempt to start a process before the current one has finished its bootstrapping phase."
    ),
    fix=MAIN_GUARD,
    edit=Guard(),
    safety=Safety.PROVED,
    source=_PROCESSES,
    example=Example(
        bad="""
            from torch.utils.data import DataLoader

            for x in DataLoader(torch.rand(8, 4), batch_size=4, num_workers=1):
                y = x.to(device) + 1
        """,
        better={"for x": 'if __name__ == "__main__":\n    for x', "    y =": "        y ="},
    ),
)

UNPICKLABLE = Rule(
    id="MPS803",
    title="Workers cannot be given a lambda or a local function",
    stops=True,
    explains=ended_by_workers,
    why=f"{_SPAWN}. The data set and its functions are sent to it with pickle, which stores functions by name only.",
    fix=AT_TOP_LEVEL,
    source=f"{_PROCESSES}; docs.python.org, pickle, what can be pickled",
    example=Example(
        bad="""
            from torch.utils.data import DataLoader

            if __name__ == "__main__":
                for x in DataLoader(torch.rand(8, 4), num_workers=1, collate_fn=lambda rows: torch.stack(rows)):
                    y = x.to(device) + 1
        """,
        better={"lambda rows: torch.stack(rows)": "torch.stack"},
    ),
)

RESTARTED = Rule(
    id="MPS804",
    title="Workers restarted in every epoch",
    severity=Severity.WARNING,
    why=f"{_SPAWN} that imports torch and the script, which takes seconds. Meanwhile the GPU is idle.",
    fix="Pass `persistent_workers=True` to the DataLoader.",
    edit=LineEdit(persistent_workers),
    safety=Safety.PROVED,
    source=_PROCESSES,
    example=Example(
        bad="""
            from torch.utils.data import DataLoader

            if __name__ == "__main__":
                loader = DataLoader(torch.rand(8, 4), batch_size=4, num_workers=1)
                for epoch in range(3):
                    for x in loader:
                        y = x.to(device) + 1
        """,
        better={"num_workers=1": "num_workers=1, persistent_workers=True"},
    ),
)

ON_MPS = Rule(
    id="MPS805",
    title="Workers are given tensors on mps",
    stops=True,
    why=(
        "A tensor on mps cannot go to another process. Where workers are spawned, as on macOS, torch raises "
        "RuntimeError: _share_filename_: only available on CPU. Where they are forked, Metal crashes or hangs in the "
        "worker, because the parent has used it."
    ),
    fix=f"{CPU_DATA_SET} Data that is already on mps needs no workers.",
    source="pytorch issue #87688; pytorch pull request #178037 (fork), torch 2.7 to 2.15",
    example=Example(
        bad="""
            from torch.utils.data import DataLoader, TensorDataset

            if __name__ == "__main__":
                data = TensorDataset(torch.rand(8, 4).to(device))
                batches = iter(DataLoader(data, batch_size=4, num_workers=1))
        """,
        better={".to(device)": "", "num_workers=1))": "num_workers=1))\n    x = next(batches)[0].to(device)"},
    ),
)

_FEWEST_EPOCHS: Final = 3


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about DataLoaders."""
    by_line = notes_by_line(recording.noted("loader"))
    yield from _pinned([loader for group in by_line for loader in group])
    for group in by_line:
        yield from _on_mps(group)
        yield from _workers([loader for loader in group if _spawns(loader)])


def _pinned(loaders: list[Noted]) -> Iterator[Finding]:
    """One for each line that makes such loaders, as that is the line to change, wherever they are used."""
    made: dict[tuple[str, int], list[Noted]] = {}
    for loader in loaders:
        if loader.facts.get("pin_memory"):
            site = made_at(loader)
            made.setdefault(site.file_line, []).append(loader)
    for group in made.values():
        used = [loader.occurrence.site for loader in group if loader.occurrence.site != made_at(group[0])]
        yield PINNED.finding(
            made_at(group[0]),
            what="A DataLoader with `pin_memory=True`: on mps it warns, and its batches are not pinned.",
            count=count_of(group),
            related_sites=dict.fromkeys(used),
            related_as="used at",
        )


def _on_mps(loaders: list[Noted]) -> Iterator[Finding]:
    given = [loader for loader in loaders if loader.facts.get("on_mps")]
    if given:
        what = f"`{given[0].facts['on_mps']}` of a DataLoader with {_workers_of(given[0])} is on mps."
        yield ON_MPS.finding(made_at(given[0]), what=what, count=count_of(given))


def _workers_of(loader: Noted) -> str:
    workers = loader.facts.get("workers")
    return plural(workers if isinstance(workers, int) else 0, "worker")


def _workers(loaders: list[Noted]) -> Iterator[Finding]:
    if not loaders:
        return
    site, processes = loaders[0].occurrence.site, _workers_of(loaders[0])
    unguarded = [loader for loader in loaders if loader.facts.get("guarded") is False]
    if unguarded:
        what = f'A DataLoader with {processes}, and no `if __name__ == "__main__"` around what runs it.'
        yield UNGUARDED.finding(site, what=what, count=count_of(unguarded))
    unpicklable = [loader for loader in loaders if loader.facts.get("unpicklable")]
    if unpicklable:
        name = unpicklable[0].facts["unpicklable"]
        what = f"`{name}` of a DataLoader with {processes} is a lambda or a local function, which cannot be sent."
        yield UNPICKLABLE.finding(made_at(unpicklable[0]), what=what, count=count_of(unpicklable))
    # Without a guard each worker comes to the loader, too: what starts there is no epoch.
    restarted = [] if unguarded else [loader for loader in loaders if not loader.facts.get("persistent")]
    if count_of(restarted) >= _FEWEST_EPOCHS:
        what = f"{processes[0].upper()}{processes[1:]} started {count_of(restarted)} times, once an epoch."
        yield RESTARTED.finding(made_at(restarted[0]), what=what, count=count_of(restarted))
