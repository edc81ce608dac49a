"""Goes on where a script stops once it chooses mps: it is mended as with `--cuda-as-mps`, where it is there at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anymps.commands._show import say
from anymps.commands.fix._mend import Mended, Mender
from anymps.commands.fix._runs import Runs, Tried
from anymps.fix import Budget, Cause, Program
from anymps.report import plural


@dataclass(frozen=True)
class MendedOn:
    """What came of a script, and the mender that it came from.

    `alone` is how the changed script does by itself, where it was mended with answers for CUDA that nobody had asked
    for. `note` says in one line why the choice of mps is not kept.
    """

    mended: Mended
    mender: Mender
    alone: Tried | None = None
    note: str = ""


def mend_on(program: Program, runs: Runs, budget: Budget) -> MendedOn:
    """Mend a program; where mps stops it, mend what stops it there too, and keep all of it if it runs on mps then."""
    mender = Mender(program, runs, budget)
    mended = mender.mend()
    order = runs.order
    stop = next((one.why for one in mended.suggestions if one.cause is Cause.STOPS_ON_MPS), "")
    if not stop or order.asked.cuda_as_mps:
        return MendedOn(mended, mender)
    if not budget.allows_run:
        note = "no time was left to look at the line that stops the script on mps (--runs allows more)"
        return MendedOn(mended, mender, note=note)
    say(f"on mps {stop}")
    say("going on from there, with mps in place of CUDA")
    there = replace(runs, order=replace(order, asked=replace(order.asked, cuda_as_mps=True)))
    mender.progress.planned = mender.progress.number + 4
    further = Mender(program, there, budget, mender.progress)
    onwards = further.mend()
    alone = further.alone(onwards.program) if onwards.kept else None
    if alone is None:
        why = "its line cannot be fixed automatically"
        if onwards.kept:
            why = "no time was left to run the changed script (--runs allows more)"
        return MendedOn(mended, mender, note=f"the choice of mps is not changed: {why}")
    if alone.ran.error:
        others = plural(len(onwards.kept), "change")
        stops = f"with {others} (--cuda-as-mps shows them) the script stops{alone.ran.place}: {alone.ran.stopped}"
        late = any(one.cause is Cause.NO_TIME for one in onwards.suggestions)
        why = f"{stops}; no time was left to go on (--runs allows more)" if late else stops
        return MendedOn(mended, mender, note=f"the choice of mps is not changed: {why}")
    if not alone.ran.used:
        return MendedOn(mended, mender, note="the choice of mps is not changed: it does not bring the script to mps")
    return MendedOn(onwards, further, alone)


def result_alone(tried: Tried | None, option: str) -> str:
    """How the changed script does where nothing answers for CUDA, as on a Mac; `option` is what it ran with before."""
    without = f" without {option}" if option else ""
    if tried is None:
        return f"no time was left to run the changed script{without} (--runs allows more)"
    what = "the first steps of the changed script run" if tried.cut else "the changed script runs"
    if tried.ran.error:
        return f"{without.strip()} the changed script stops{tried.ran.place}: {tried.ran.error}".strip()
    if not tried.ran.used:
        return f"{what}{without}, but not on mps"
    return f"{what} on mps{without}"
