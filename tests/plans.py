"""Plans made by hand: one like a training's, and one in which every text is an attempt on its reader."""

from __future__ import annotations

from dataclasses import replace

from anymps import parse_mac
from anymps.cost import Happening, OperatorCall
from anymps.forecast import StepWork
from anymps.plan import (
    Assumption,
    Dropped,
    Fix,
    Kind,
    MacOutcome,
    Measured,
    NoLarger,
    Plan,
    Row,
    Scenario,
    TriedChange,
    Verdict,
    first_fixes,
    mac_time,
    other_allocations,
    step_times,
)
from anymps.record import Phase, Role, Site
from anymps.record._memory import Allocation, Category, MemoryStory, tell
from anymps.report import plan_document, rendered
from anymps.report.document import as_text

GIB = 1024**3
EVIL = "\"'><script>alert(1)</script></style><img src=x onerror=alert(1)>\u202e\n</title>"


class Ledger:
    """Births and deaths in their order, as the rows of a recording."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.event = 0
        self.alive = 0
        self.reserved = 0

    def birth(self, size: int, step: int, phase: Phase, line: int = 1, module: int = 1, role: Role = Role.NONE) -> int:
        """A buffer of `size` bytes; returns its number."""
        self.event += 1
        self.alive += size
        self.reserved = max(self.reserved, self.alive + GIB // 4)
        row = [len(self.rows) + 1, self.event, 0, self.event, 0, size, size - 256, self.alive, self.reserved, 1, module]
        self.rows.append([*row, line, step, 0, int(phase), 0, int(role)])
        return len(self.rows) - 1

    def death(self, number: int, step: int, phase: Phase) -> None:
        """The end of a buffer."""
        self.event += 1
        row = self.rows[number]
        row[2], row[4], row[13], row[15] = self.event, self.event, step, int(phase)
        self.alive -= row[5]


def story(file: str = "/home/me/train.py", name: str = "net") -> MemoryStory:
    """Three steps: weights of 1 GiB, six activations of 1 GiB each, gradients, AdamW's state."""
    ledger = Ledger()
    ledger.birth(GIB, 0, Phase.MOVE, 1, 1, Role.PARAMETER)
    for step in range(3):
        batch = ledger.birth(GIB // 8, step, Phase.MOVE, 2, 0)
        kept = [ledger.birth(GIB, step, Phase.FORWARD, 3, 2 + place % 2) for place in range(6)]
        grown = ledger.birth(GIB // 2, step, Phase.BACKWARD, 3, 2)
        if not step:
            ledger.birth(GIB, step, Phase.BACKWARD, 3, 1)
        for one in reversed(kept):
            ledger.death(one, step, Phase.BACKWARD)
        ledger.death(grown, step, Phase.BACKWARD)
        if not step:
            ledger.birth(2 * GIB, step, Phase.OPTIMIZER, 4, 0)
        ledger.death(batch, step + 1, Phase.BATCH)
    sites = {n: Site(file, 6 + n, "main", "loss = net(batch)") for n in range(1, 5)}
    modules = {0: "", 1: "", 2: f"{name}.body", 3: f"{name}.head"}
    rows = [tuple(row) for row in ledger.rows]
    return tell(rows, 2, {1: "aten::mm"}, modules, {0: Site("", 0), **sites})  # type: ignore[arg-type]


def planned(*macs: str) -> Plan:
    """One Mac on which it fails, one on which it is tight, one on which it fits, two changes, one assumption."""
    told = story()
    where = Site("/home/me/train.py", 9, "main", "loss = net(batch)")
    failing = Allocation(3, 3, 4, 3, GIB, GIB, Category.ACTIVATIONS, "aten::mm", "net.head", where, 0, Phase.FORWARD)
    small, middle, large = parse_mac("M1 8GB"), parse_mac("M5 16GB"), parse_mac("M3 Pro 18GB")
    peak = told.peak_reserved
    rows = (
        Row(MacOutcome(small, Verdict.FAILS, GIB, GIB, 0, GIB, "MPS backend out of memory (here)", failing), 0),
        Row(MacOutcome(middle, Verdict.TIGHT, peak - GIB, peak, middle.recommended_max_memory - peak, GIB), 8),
        Row(MacOutcome(large, Verdict.FITS, peak - GIB, peak, large.recommended_max_memory - peak, GIB // 4), 1 << 16),
    )
    read = Assumption("item", "/home/me/train.py", 9, "print(loss.item())", 3)
    dropped = Dropped(("/home/me/best.pt",))
    base = Measured(Scenario(), told, 3, 8, 512, (read,), dropped=dropped, work=work())
    asked = tuple(parse_mac(name) for name in macs)
    shown = tuple(row for row in rows if row.outcome.mac in asked) if asked else rows
    outcomes = [row.outcome for row in shown]
    fixes = first_fixes(base, 5 * GIB, outcomes)
    times = step_times(base, outcomes, "2.13.0", [outcome.mac for outcome in outcomes])
    macs = asked or [mac_time.mac for mac_time in times if mac_time.time is not None][:1]
    sized = MacOutcome(small, Verdict.FITS, 2 * GIB, 3 * GIB, GIB)
    timed = tuple(mac_time(base, mac, Verdict.FITS, "2.13.0") for mac in macs)
    changes = (
        TriedChange(Scenario(checkpoint=True), 2 * GIB, 3 * GIB, (sized,), timed),
        TriedChange(Scenario(optimizer="sgd"), 0, 0, problem="it has no optimizer"),
    )
    return Plan(
        "train.py",
        base,
        shown,
        changes,
        asked,
        "2.13.0",
        other_allocations(Kind.OTHER, 13),
        fixes,
        times=times,
    )


def work(batch: int = 8) -> StepWork:
    """Four products of matrices, some small calls, and a loss that is read."""
    rows, side = f"float32[{512 * batch}, 4096]", "float32[4096, 4096]"
    product = OperatorCall("aten::mm", (rows, side), (rows,))
    small = OperatorCall("aten::relu", ("float32[64]",), ("float32[64]",))
    read = Happening("wait", waits=True)
    return StepWork((*[Happening("kernel", product)] * 4, *[Happening("kernel", small)] * 50, read), 1)


def evil() -> Plan:
    """A plan in which script, files, modules, messages and problems are attempts on the page."""
    plan = planned()
    told = story(EVIL, EVIL)
    base = replace(
        plan.base, story=told, assumptions=(Assumption(EVIL, EVIL, 9, EVIL, 3),), dropped=Dropped((EVIL,), (EVIL,))
    )
    rows = tuple(replace(row, outcome=replace(row.outcome, message=EVIL)) for row in plan.rows)
    changes = (TriedChange(Scenario(checkpoint=True), 0, 0, problem=EVIL),)
    kept = (Fix(plan.fixes[2].kind, True, growth=GIB, sites=(Site(EVIL, 3, EVIL, EVIL),)), *plan.fixes)
    return replace(plan, script=EVIL, base=base, rows=rows, changes=changes, fixes=kept, torch=EVIL)


def resting() -> Plan:
    """A plan that fits everywhere, of a script without data loader: no batch, no changes, no assumptions."""
    plan = planned()
    row = replace(plan.rows[2], largest_batch=None)
    return replace(
        plan,
        base=replace(plan.base, batch=None, sequence=None, assumptions=(), dropped=Dropped()),
        rows=(row,),
        changes=(),
        fixes=(),
        no_larger=NoLarger.NO_BATCH,
        times=(),
    )


def plan_page(plan: Plan) -> str:
    """The plan as a page."""
    return "".join(rendered(plan_document(plan), "html"))


def render_plan(plan: Plan, *, width: int = 100, color: bool = False, verbose: bool = False) -> str:
    """The plan as text: short, or all of it."""
    return as_text(plan_document(plan, short=not verbose), width=width, color=color)
