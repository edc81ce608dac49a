"""MPS207: the host waits again and again in a loop that takes no training step, such as validation or inference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.findings._costs import ITEM
from anymps.findings._example import Example
from anymps.findings._loop import AtLine, by_line, is_every_step, is_library, loops_untrained, times
from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._wait_advice import Advice
from anymps.findings._waits import TO_CPU, advice_on, away_in_round_trips, by_rule, cost_on
from anymps.record import Occurrence, Recording, Wait

_KINDS: Final = (Wait.ITEM, Wait.INSIDE_OPERATOR, Wait.COPY_TO_CPU)
"""Those that read a value. Who waits for all of the queue, by `synchronize()`, may be timing each round."""

LOOPING: Final = Rule(
    id="MPS207",
    title="Host waits in each round of a validation or inference loop",
    severity=Severity.INFO,
    why=(
        "The host waits until the GPU has finished all queued work, and the GPU then stands still until the host has "
        "queued more. In such a loop nothing else keeps the host from running ahead."
    ),
    fix="Keep results on the device (`correct += (prediction == target).sum()`), and read them once after the loop.",
    source=f"aten/src/ATen/native/mps/operations/Scalar.mm, Copy.mm (torch 2.13); {ITEM.source}",
    example=Example(
        bad="""
            model.eval()
            total = 0.0
            with torch.no_grad():
                for x in batches * 4:
                    total += model(x.to(device)).mean().item()
        """,
        good="""
            model.eval()
            total = torch.zeros((), device=device)
            with torch.no_grad():
                for x in batches * 4:
                    total += model(x.to(device)).mean()
            print(total.item())
        """,
    ),
)

RULES = (LOOPING,)


def find(recording: Recording) -> Iterator[Finding]:
    """One finding a line of the program's own, or one for all lines where one setting ends the waits."""
    away = away_in_round_trips(recording)
    groups: dict[tuple[object, ...], tuple[Rule, Advice, list[AtLine]]] = {}
    for line in by_line(_repeated(recording)):
        if not line.site.known or not loops_untrained(line):
            continue
        for rule, mine in by_rule(line):
            if rule is TO_CPU and away[line.site.file, line.site.line] >= mine.count:
                continue
            advice = advice_on(recording, rule, mine)
            key = (rule.id, advice) if advice.elsewhere else (rule.id, line.site)
            groups.setdefault(key, (rule, advice, []))[2].append(mine)
    for rule, advice, lines in groups.values():
        yield _finding(rule, advice, lines)


def _repeated(recording: Recording) -> Iterator[Occurrence]:
    """Waits of the program's own lines that are no training step's routine, and had something to wait for."""
    busy = {(queue.site.file, queue.site.line, queue.wait) for queue in recording.queues() if queue.operators}
    for wait in recording.waits():
        if (
            wait.wait in _KINDS
            and not is_library(wait.site)
            and not is_every_step(recording, wait)
            and (wait.site.file, wait.site.line, wait.wait) in busy
        ):
            yield wait


def _finding(rule: Rule, advice: Advice, lines: list[AtLine]) -> Finding:
    lines = sorted(lines, key=lambda line: -cost_on(line)[1])
    costs = [cost_on(line) for line in lines]
    count = sum(line.count for line in lines)
    places = "" if len(lines) == 1 else f", at {len(lines)} lines: this one costs most"
    return LOOPING.finding(
        lines[0].site,
        what=f"{advice.what} {times(count)}, in a loop without a training step{places}.",
        count=count,
        cost_ns=(sum(low for low, _ in costs), sum(high for _, high in costs)),
        fix=advice.fix or rule.fix,
        source=advice.source or rule.source,
        related_sites=[line.site for line in lines[1:]],
        related_as="also at" if lines[1:] else "",
    )
