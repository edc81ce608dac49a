"""MPS201 to MPS207: places in the loop where the host waits for the GPU in every step, and in rounds of other loops.

Waits that belong do not count: the batch's copy to the device, a loss that is read every fifth step or after the loop,
one-off printing, validation between steps (`_wait_loops.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from anymps._errors import UnsupportedTorchError
from anymps.findings._costs import COPY, ITEM, SYNCHRONIZE, cost_of_wait
from anymps.findings._loop import (
    AtLine,
    by_line,
    is_every_step,
    is_library,
    loops_untrained,
    package_of,
    some_steps,
    times,
    waits_per_step,
)
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings._wait_places import kind_at
from anymps.findings.advice import (
    EVERY_10,
    LESS_MEMORY,
    PRINT_EVERY_10,
    WAITS,
    Advice,
    add_up,
    anomaly_advice,
    copy_advice,
    instead_of,
    read_advice,
    scaler_advice,
    show_advice,
    shown_by,
    shows,
)
from anymps.record import Occurrence, Recording, Wait
from anymps.rules import wait_of

_DRAIN = f"The host {WAITS}. The GPU is then idle until the host has queued more."

_EVERY_STEP = partial(Rule, severity=Severity.WARNING, needs_steps=True)

READ = _EVERY_STEP(
    id="MPS201",
    title="Value read back in every step",
    waits=frozenset({Wait.ITEM}),
    why=_DRAIN,
    fix=add_up("total = total + loss.detach()", "the sum"),
    source=f"aten/src/ATen/native/mps/operations/Scalar.mm (torch 2.13); {ITEM.source}",
    example=Example(
        bad="""
            total = 0.0
            for x in batches:
                total += train(x).item()
        """,
        better={"0.0": "torch.zeros((), device=device)", "+=": "= total +", ".item()": "\nprint(total.item())"},
    ),
)

PRINT = _EVERY_STEP(
    id="MPS202",
    title="Tensor printed or logged in every step",
    waits=frozenset({Wait.ITEM, Wait.COPY_TO_CPU, Wait.INSIDE_OPERATOR}),
    why=f"Showing a tensor reads it back. {_DRAIN}",
    fix=f"{PRINT_EVERY_10}.",
    source=f"torch/_tensor_str.py, torch/_tensor.py (torch 2.13); {ITEM.source}",
    example=Example(
        bad="""
            for x in batches:
                print(train(x))
        """,
        good="""
            for step, x in enumerate(batches):
                loss = train(x)
                if step % 10 == 0:
                    print(loss)
        """,
    ),
)

INSIDE = _EVERY_STEP(
    id="MPS203",
    title="Operator waits internally in every step",
    waits=frozenset({Wait.INSIDE_OPERATOR}),
    why=f"The operator needs a value on the host before it can continue. {_DRAIN}",
    fix="Use an operator whose result has a fixed size, or do this once before the loop.",
    source=f"callers of MPSStream::synchronize and Tensor::item in the macOS wheels; {ITEM.source}",
    example=Example(
        bad="""
            for x in batches:
                train(x)
                weight = model.weight.detach()
                total = weight[weight > 0].sum()
        """,
        better={"total = weight[weight > 0].sum()": "total = torch.where(weight > 0, weight, 0).sum()"},
    ),
)

TO_CPU = _EVERY_STEP(
    id="MPS204",
    title="Tensor copied to the CPU in every step",
    waits=frozenset({Wait.COPY_TO_CPU}),
    why=_DRAIN,
    fix=f"Keep results on the device, `.detach()`, and read them together {EVERY_10}.",
    source=f"aten/src/ATen/native/mps/operations/Copy.mm (torch 2.13); {COPY.source}",
    example=Example(
        bad="""
            losses = []
            for x in batches:
                losses.append(train(x).cpu())
        """,
        better={".cpu())": ")\nlosses = torch.stack(losses).cpu()"},
    ),
)

SYNCHRONIZED = _EVERY_STEP(
    id="MPS205",
    title="synchronize() in every step",
    waits=frozenset({Wait.SYNCHRONIZE}),
    why=_DRAIN,
    fix="Synchronize only around what you time: once before the clock starts and once before it stops, for many steps.",
    source=f"aten/src/ATen/mps/MPSStream.mm (torch 2.13); {SYNCHRONIZE.source}",
    example=Example(
        bad="""
            for x in batches:
                train(x)
                torch.mps.synchronize()
        """,
        better={"    torch.mps.synchronize()": "torch.mps.synchronize()"},
    ),
)

DRAINED = _EVERY_STEP(
    id="MPS206",
    title="Event wait or empty_cache() in every step",
    waits=frozenset({Wait.EVENT, Wait.EMPTY_CACHE}),
    why=_DRAIN,
    fix="Take it out of the loop.",
    source=f"aten/src/ATen/mps/MPSEvent.mm, MPSAllocator.mm (torch 2.13); {SYNCHRONIZE.source}",
    example=Example(
        bad="""
            for x in batches:
                train(x)
                torch.mps.empty_cache()
        """,
        better={"    torch.mps.empty_cache()": "torch.mps.empty_cache()"},
    ),
)

LOOPING = Rule(
    id="MPS207",
    about_loops=True,
    title="Host waits in each round of a validation or inference loop",
    severity=Severity.INFO,
    why=f"{_DRAIN} In such a loop nothing else keeps the host from running ahead.",
    fix="Keep results on the device, `correct = correct + (prediction == target).sum()`, and read them after the loop.",
    source=f"aten/src/ATen/native/mps/operations/Scalar.mm, Copy.mm (torch 2.13); {ITEM.source}",
    example=Example(
        bad="""
            model.eval()
            total = 0.0
            with torch.no_grad():
                for x in batches * 4:
                    total += model(x.to(device)).mean().item()
        """,
        better={"0.0": "torch.zeros((), device=device)", "+=": "= total +", ".item()": "\nprint(total.item())"},
    ),
)

_RULE_OF = {
    Wait.ITEM: READ,
    Wait.INSIDE_OPERATOR: INSIDE,
    Wait.COPY_TO_CPU: TO_CPU,
    Wait.SYNCHRONIZE: SYNCHRONIZED,
    Wait.EVENT: DRAINED,
    Wait.EMPTY_CACHE: DRAINED,
}
_READING: Final = (Wait.ITEM, Wait.INSIDE_OPERATOR, Wait.COPY_TO_CPU)
"""Those that read a value. Code that waits for the whole queue, by `synchronize()`, may be timing each round."""
_OF_PACKAGE: Final = (
    "Nothing in your own files: check whether a setting or a newer release of `{0}` avoids it, or report it to its "
    "authors."
)
_PRINTED: Final = "Keep results on the device, and print those of several rounds together: one wait, not one each."


def find_after(recording: Recording, others: Sequence[Finding]) -> Iterator[Finding]:
    """Findings about host waits in every step, and in each round of other loops."""
    away = Counter[tuple[str, int]]()  # copies to the CPU of round trips, which have a finding of their own
    for trip in (finding for finding in others if finding.rule.both_ways):
        for site in trip.related_sites:
            away[site.file_line] += trip.count
    yield from _in_steps(recording, away)
    yield from _in_loops(recording, away)


def _in_steps(recording: Recording, away: Mapping[tuple[str, int], int]) -> Iterator[Finding]:
    routine = [wait for wait in recording.waits() if wait.wait in _RULE_OF and is_every_step(recording, wait)]
    for rule, advice, lines in _grouped(recording, by_line(routine), away):
        yield _in_every_step(recording, rule, advice, lines)


def _grouped(
    recording: Recording, lines: Iterable[AtLine], away: Mapping[tuple[str, int], int]
) -> list[tuple[Rule, Advice, list[AtLine]]]:
    """The waits of lines by what is one finding.

    That is what one setting ends wherever it waits, what a package does in lines of its own, what one call over several
    lines shows, and else each line.
    """
    groups: dict[tuple[object, ...], tuple[Rule, Advice, list[AtLine]]] = {}
    for rule, advice, line in _advised(recording, lines, away):
        package = "" if advice.elsewhere else package_of(line.site)
        if package:
            advice = Advice(f"The package `{package}` made the host wait", _OF_PACKAGE.format(package))
        shown = shown_by(line.site) if rule is PRINT and not package else None
        one = advice if advice.elsewhere or package else shown.line if shown is not None else line.operators
        place = () if advice.elsewhere or package else line.site if shown is None else line.site.file
        groups.setdefault((rule.id, one, place), (rule, advice, []))[2].append(line)
    return list(groups.values())


def _advised(
    recording: Recording, lines: Iterable[AtLine], away: Mapping[tuple[str, int], int]
) -> Iterator[tuple[Rule, Advice, AtLine]]:
    """The waits of lines, by the rule that they break in a training step, with what to do about them."""
    for line in lines:
        for rule, mine in _by_rule(line):
            if rule is not TO_CPU or away.get(line.site.file_line, 0) < mine.count:
                yield rule, _advice(recording, rule, mine), mine


def _finding_about(
    rule: Rule, advice: Advice, lines: list[AtLine], often: str, per_step: float = 0.0, severity: Severity | None = None
) -> Finding:
    """One finding about lines with the same remedy, at the costliest of them; `often`: how often they waited."""
    lines = sorted(lines, key=lambda line: -_cost(line)[1])
    costs = [_cost(line) for line in lines]
    places = "" if len(lines) == 1 else f", at {len(lines)} lines: this one costs most"
    return rule.finding(
        lines[0].site,
        what=f"{advice.what} {often}{places}.",
        count=sum(line.count for line in lines),
        per_step=per_step,
        cost_ns=(sum(low for low, _ in costs), sum(high for _, high in costs)),
        fix=advice.fix,
        source=advice.source,
        edit=advice.edit,
        written=advice.written,
        related_sites=[line.site for line in lines[1:]],
        related_as="also at" if lines[1:] else "",
        severity=severity,
    )


def _by_rule(line: AtLine) -> Iterator[tuple[Rule, AtLine]]:
    if shows(line):
        yield PRINT, line
        return
    for rule in dict.fromkeys(_RULE_OF[wait.wait] for wait in line.occurrences):
        yield rule, AtLine(line.site, tuple(wait for wait in line.occurrences if _RULE_OF[wait.wait] is rule))


def _in_every_step(recording: Recording, rule: Rule, advice: Advice, lines: list[AtLine]) -> Finding:
    # The number that the table of waits has for the line: that of a typical step.
    typical = {kind_at(queue.site, queue.wait): queue.per_step for queue in recording.queues()}
    per_step = 0.0
    for line in lines:
        kinds = {kind_at(line.site, each.wait) for each in line.occurrences}
        known = waits_per_step(recording, line.site, sum(typical.get(kind, 0.0) for kind in kinds))
        per_step += known if line.site.known else line.per_step
    occurrences = (occurrence for line in lines for occurrence in line.occurrences)
    often = f"{times(per_step)} a step{some_steps(recording, occurrences)}"
    packaged = not advice.elsewhere and package_of(lines[0].site)
    return _finding_about(rule, advice, lines, often, per_step, Severity.INFO if packaged else None)


def _cost(line: AtLine) -> tuple[float, float]:
    costs = [cost_of_wait(wait.wait, wait.count, wait.moved_bytes) for wait in line.occurrences]
    return sum(low for low, _ in costs), sum(high for _, high in costs)


def _advice(recording: Recording, rule: Rule, line: AtLine) -> Advice:
    if rule is READ:
        if any("grad_scaler" in wait.site.via for wait in line.occurrences):
            return scaler_advice(recording)
        searched = anomaly_advice(line)
        return searched if searched is not None and recording.noted("anomaly") else read_advice(line)
    if rule is PRINT:
        return show_advice(line)
    if rule is INSIDE:
        return _inside(recording, line)
    if rule is TO_CPU:
        return copy_advice(line)
    if rule is SYNCHRONIZED:
        return Advice("A synchronize made the host wait")
    if any(wait.wait is Wait.EMPTY_CACHE for wait in line.occurrences):
        if "anymps::allocator" in line.operators:
            return Advice(
                "An allocation that did not fit made the host wait, and gave all cached memory back",
                LESS_MEMORY,
            )
        return Advice(
            "empty_cache() made the host wait",
            "Take it out of the loop: the next step must allocate again, and from torch 2.13 compile its graphs again. "
            "Call it once when memory use changes, such as before validation.",
        )
    return Advice("Waiting for an event made the host wait", f"Read events {EVERY_10}.")


def _inside(recording: Recording, line: AtLine) -> Advice:
    names = [operator.rpartition("::")[2] for operator in line.operators]
    fix = instead_of(line.operators, line.site.source)
    known = None
    try:
        known = wait_of(names[0], recording.run.torch_version)
    except UnsupportedTorchError:
        pass  # a recording of another torch, or of an unknown one
    operators = " and ".join(f"`{operator}`" for operator in line.operators)
    if known is None:
        return Advice(f"{operators} made the host wait", fix)
    return Advice(f"{operators} made the host wait ({known.what})", fix, f"{known.source}; {ITEM.source}")


def _in_loops(recording: Recording, away: Mapping[tuple[str, int], int]) -> Iterator[Finding]:
    looping = (line for line in by_line(_repeated(recording)) if line.site.known and loops_untrained(recording, line))
    for rule, advice, lines in _grouped(recording, looping, away):
        # A training logs; what an inference prints is its result, and none of it is to be left out.
        prints = rule is PRINT and not recording.trains and "print(" in lines[0].site.source
        whole = advice._replace(fix=advice.fix or rule.fix, source=advice.source or rule.source)
        if prints:
            whole = whole._replace(fix=_PRINTED, edit=None)
        often = f"{times(sum(line.count for line in lines))}, in a loop without a training step"
        yield _finding_about(LOOPING, whole, lines, often)


def _repeated(recording: Recording) -> Iterator[Occurrence]:
    """Reads in no training step's routine, at the program's own lines; of copies those that had work to wait for."""
    busy = {kind_at(queue.site, queue.wait) for queue in recording.queues() if queue.operators}
    for wait in recording.waits():
        if (
            wait.wait in _READING
            and not is_library(wait.site)
            and not is_every_step(recording, wait)
            and (wait.wait is Wait.ITEM or kind_at(wait.site, wait.wait) in busy)
        ):
            yield wait
