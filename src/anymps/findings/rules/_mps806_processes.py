"""MPS806 to MPS808: what goes to another process, and how a script's processes start on macOS."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from anymps.findings._endings import NOT_SENT, SPAWNING, ending
from anymps.findings._loop import count_of, notes_by_line
from anymps.findings._model import Example, Finding, Rule
from anymps.findings.advice import AT_TOP_LEVEL, CPU_DATA_SET, MAIN_GUARD
from anymps.findings.edits import Safety
from anymps.record import Noted, Recording
from anymps.rules.texts import shared_memory
from anymps.source import Guard

_WAITED: Final = ("Empty", "TimeoutError")
"""What ends the wait for a tensor that was not sent, if anything does."""

_SHARED: Final = re.compile(
    "|".join(re.escape(shared_memory(strategy).text) for strategy in ("file_system", "file_descriptor"))
)


def ended_by_processes(recording: Recording) -> bool:
    """Whether the run ended as a process could not be started as macOS starts it.

    The process itself raises; its parent is told that a pool is broken, or that a manager's process has gone.
    """
    ended = ending(recording)
    for process in recording.noted("process"):
        site, facts = process.occurrence.site, process.facts
        if facts.get("start_method", "") not in SPAWNING:
            continue
        here = site.file_line == ended.site.file_line
        if facts.get("guarded") is False and (
            ended.exception == "BrokenProcessPool" or (here and ended.exception == "EOFError")
        ):
            return True
        if facts.get("unpicklable") and here and NOT_SENT.search(ended.message):
            return True
    return False


def ended_by_sharing(recording: Recording) -> bool:
    """Whether the run ended as torch was to share memory on mps, or as nothing came of it."""
    ended = ending(recording)
    return bool(_SHARED.search(ended.message) or (ended.exception in _WAITED and recording.noted("sent")))


SENT = Rule(
    id="MPS806",
    title="Tensor on mps sent to another process",
    stops=True,
    explains=ended_by_sharing,
    why="Memory on mps belongs to one process. Torch shares tensors through CPU memory only, and raises.",
    fix="Send a CPU copy, `x.cpu()`, and move it in the receiving process: `x.to(device)`.",
    source=(
        "torch/csrc/StorageSharing.cpp, torch/multiprocessing/reductions.py, torch 2.7 to 2.15; pytorch issue #87688"
    ),
    example=Example(
        bad="""
            import torch.multiprocessing as mp

            queue = mp.SimpleQueue()
            x = torch.ones(3, device=device)
            queue.put(x)
        """,
        better={"queue.put(x)": "queue.put(x.cpu())"},
    ),
)

_SPAWN: Final = "macOS spawns processes (the default there since Python 3.8): each is a new Python process"
_SOURCE: Final = "docs.python.org, multiprocessing, contexts and start methods (Python 3.8 and later)"
_GUARDED: Final = """
    import torch.multiprocessing as mp

    if __name__ == "__main__":
        worker = mp.Process(target=print, args=("in a process",))
        worker.start()
        worker.join()
        x = torch.ones(3, device=device)
"""

UNGUARDED = Rule(
    id="MPS807",
    title='Process without `if __name__ == "__main__"`',
    stops=True,
    explains=ended_by_processes,
    why=(
        f"{_SPAWN} that imports the script again. Without the guard it reaches this line too, and raises "
        "RuntimeError: an attempt to start a process before the current one has finished its bootstrapping phase. "
        "A pool keeps starting such processes."
    ),
    fix=MAIN_GUARD,
    edit=Guard(),
    safety=Safety.PROVED,
    source=_SOURCE,
    example=Example(
        bad="""
            import torch.multiprocessing as mp

            worker = mp.Process(target=print, args=("in a process",))
            worker.start()
            worker.join()
            x = torch.ones(3, device=device)
        """,
        good=_GUARDED,
    ),
)

UNPICKLABLE = Rule(
    id="MPS808",
    title="Process cannot be given a lambda or a local function",
    stops=True,
    explains=ended_by_processes,
    why=f"{_SPAWN}. Its function and arguments are sent to it with pickle, which stores functions by name only.",
    fix=AT_TOP_LEVEL,
    source=f"{_SOURCE}; docs.python.org, pickle, what can be pickled",
    example=Example(
        bad=_GUARDED.replace('print, args=("in a process",)', 'lambda: print("in a process")'),
        good=_GUARDED,
    ),
)

_QUEUED: Final = (
    "A queue was given a tensor on mps. Its own thread sends it and prints the error that torch raises there, "
    "RuntimeError: "
    f"{shared_memory('file_system').text}. Whatever waits for the tensor waits forever."
)
_WORKER: Final = "in DataLoader worker process"


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about tensors on mps that go to another process."""
    ended = ending(recording)
    if said := _SHARED.search(ended.message):
        by_worker = _WORKER in ended.message
        yield SENT.finding(
            ended.site,
            what=f"{'A worker of the DataLoader gave a batch on mps: torch' if by_worker else 'torch'} raised "
            f"{ended.exception}: {said.group()}",
            count=1,
            fix=CPU_DATA_SET
            if by_worker
            else "Pass CPU tensors and modules to the process, and move them inside it: `x.to(device)`."
            if ended.site.source.rstrip().endswith(".start()")
            else "",
        )
    for sent in recording.noted("sent"):
        site = sent.occurrence.site
        if not said or (site != ended.site and site.known):  # a worker's own process has no line
            yield SENT.finding(site, what=_QUEUED, count=sent.occurrence.count)
    started = (process for process in recording.noted("process") if process.facts.get("start_method", "") in SPAWNING)
    for group in notes_by_line(started):
        yield from _not_started(group)


def _not_started(processes: list[Noted]) -> Iterator[Finding]:
    """What keeps the processes of one line from starting on macOS."""
    site = processes[0].occurrence.site
    unguarded = count_of(process for process in processes if process.facts.get("guarded") is False)
    if unguarded:
        what = 'This line starts a process, and no `if __name__ == "__main__"` is around what runs it.'
        yield UNGUARDED.finding(site, what=what, count=unguarded)
    unpicklable = [process for process in processes if process.facts.get("unpicklable")]
    if unpicklable:
        name = unpicklable[0].facts["unpicklable"]
        what = f"`{name}` of a process is a lambda or a local function, which cannot be sent to it."
        yield UNPICKLABLE.finding(site, what=what, count=count_of(unpicklable))
