"""One process of the search: makes calls of the operators it is given, and tells of each find in JSON lines."""

from __future__ import annotations

import json
import mmap
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from leniency.calls import Call, RandomCalls, overloads
from leniency.samples import Samples, operators
from leniency.sides import run, told

NOTE: Final = 2000
"""Bytes of the file that holds the side and the call that are being tried."""

Note = Callable[[str, Call], object]


def names(source: str, wanted: list[str]) -> dict[str, Any]:
    """The operators of a source by name; `wanted` are beginnings of names, none stands for all."""
    every = {str(one): one for one in overloads()} if source == "random" else {op.full_name: op for op in operators()}
    found = {name.removeprefix("aten."): one for name, one in every.items()}
    return {name: one for name, one in found.items() if not wanted or name.startswith(tuple(wanted))}


def calls(source: str, name: str, one: Any, seed: int, count: int) -> Iterator[Call]:
    """The calls of one operator, the same for the same seed, whatever other operators there are."""
    own = zlib.crc32(f"{seed} {name}".encode())
    return (RandomCalls(own) if source == "random" else Samples(own)).calls(one, count)


def search(
    source: str, name: str, one: Any, seed: int, count: int, note: Note = lambda side, call: None
) -> tuple[int, int, list[dict[str, str]]]:
    """Makes the calls of one operator: how many, how many of them the CPU refused, and what mps took of these."""
    made, refused, found = 0, 0, []
    for call in calls(source, name, one, seed, count):
        described = repr(call)  # the call may write into what it is given
        outcome = run(call, lambda side, call=call: note(side, call))  # type: ignore[misc]
        made += 1
        refused += outcome.cpu is not None
        if outcome.lenient:
            found.append({"name": call.name, "call": described, "cpu": told(outcome.cpu), "why": outcome.why})
    return made, refused, found


def main() -> None:
    """`python -m leniency.worker SOURCE SEED COUNT START NOTE [NAME ...]`: all operators from number START on."""
    source, seed, count, start, path, *wanted = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w", buffering=1)  # what torch prints does not reach the report
    os.dup2(2, 1)
    import torch

    import anymps

    anymps.enable("M3 Pro 18GB", fallback=False)
    torch.set_num_threads(1)
    with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), NOTE) as memory:

        def note(side: str, call: Call) -> None:
            memory[:] = f"{side}: {call!r}".encode()[:NOTE].ljust(NOTE)

        for number, (name, one) in list(enumerate(names(source, wanted).items()))[int(start) :]:
            print(json.dumps({"begin": number, "name": name}), file=out)
            made, refused, found = search(source, name, one, int(seed), int(count), note)
            print(json.dumps({"done": number, "made": made, "refused": refused, "found": found}), file=out)
    print(json.dumps({"end": True}), file=out)


if __name__ == "__main__":
    main()
