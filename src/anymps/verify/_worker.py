"""One process of a run: asks the cases of a kind, and reports before and after each in JSON lines."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anymps.verify.cases import Case

Tell = Callable[[dict[str, Any]], None]


def main() -> None:
    """Read a job from standard input, and do it.

    The job has the `kind`, the number to `start` at, how many `seconds` there are, the `mac` that the virtual device
    plays, and the identities that are `wanted` (all without).
    """
    job = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what torch prints is no answer

    def tell(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=out)

    work(job, tell)


def work(job: dict[str, Any], tell: Tell) -> None:
    """Do a job: `begin` and `done` of each case, then `end`, or `late` if the time is up. One case is always asked."""
    begun = time.monotonic()
    cases, note, about = _prepared(job)
    wanted = None if job["wanted"] is None else frozenset(job["wanted"])
    cases = [case for case in cases if wanted is None or case.id in wanted]
    start = int(job["start"])
    tell({"hello": about, "cases": len(cases), "note": note})
    for number, case in enumerate(cases[start:], start):
        if number > start and time.monotonic() - begun > job["seconds"]:
            tell({"late": number})
            return
        tell({"begin": number, "case": case.id})
        tell({"done": number, "answer": case.ask()})
    tell({"end": len(cases)})


def _prepared(job: dict[str, Any]) -> tuple[list[Case], str, dict[str, Any]]:
    """The cases of the kind, on the device that there is."""
    from anymps.device import enable
    from anymps.verify.cases import cases_of, machine_facts

    current = enable(job["mac"], quiet=True, start_method="system")
    cases, note = cases_of(job["kind"])
    return cases, note, {"virtual": current.virtual, "machine": machine_facts(current.mac)}
