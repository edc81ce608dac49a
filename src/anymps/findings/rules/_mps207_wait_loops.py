"""MPS207: the host waits again and again in a loop that takes no training step, such as validation or inference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.findings._costs import ITEM
from anymps.findings._example import Example
from anymps.findings._loop import AtLine, by_line, is_every_step, is_library, loops_untrained, times
from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._wait_places import kind_at
from anymps.findings.advice import Advice
from anymps.findings.rules._mps201_waits import DRAIN, PRINT, advised, finding_about
from anymps.record import Occurrence, Recording, Wait

_KINDS: Final = (Wait.ITEM, Wait.INSIDE_OPERATOR, Wait.COPY_TO_CPU)
"""Those that read a value. Code that waits for the whole queue, by `synchronize()`, may be timing each round."""

LOOPING: Final = Rule(
    id="MPS207",
    about_waits=True,
    about_loops=True,
    title="Host waits in each round of a validation or inference loop",
    severity=Severity.INFO,
    why=f"{DRAIN} In such a loop nothing else keeps the host from running ahead.",
    fix=(
        "Keep results on the device (`correct = correct + (prediction == target).sum()`), and read them once after the "
        "loop."
    ),
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
                    total = total + model(x.to(device)).mean()
            print(total.item())
        """,
    ),
)

RULES = (LOOPING,)

_PRINTED: Final = "Keep the results of several rounds on the device and print them together: one wait, not one each."


def find(recording: Recording) -> Iterator[Finding]:
    """One finding a line of the program's own, or one for all lines where one setting ends the waits."""
    groups: dict[tuple[object, ...], tuple[Rule, Advice, list[AtLine]]] = {}
    looping = (line for line in by_line(_repeated(recording)) if line.site.known and loops_untrained(recording, line))
    for rule, advice, line in advised(recording, looping):
        key = (rule.id, advice) if advice.elsewhere else (rule.id, line.site)
        groups.setdefault(key, (rule, advice, []))[2].append(line)
    for rule, advice, lines in groups.values():
        # A training logs; what an inference prints is its result, and none of it is to be left out.
        prints = rule is PRINT and not recording.trains and "print(" in lines[0].site.source
        whole = advice._replace(fix=advice.fix or rule.fix, source=advice.source or rule.source)
        if prints:
            whole = whole._replace(fix=_PRINTED, edit=None)
        often = f"{times(sum(line.count for line in lines))}, in a loop without a training step"
        yield finding_about(LOOPING, whole, lines, often)


def _repeated(recording: Recording) -> Iterator[Occurrence]:
    """Waits of the program's own lines that are no training step's routine, and had something to wait for."""
    busy = {kind_at(queue.site, queue.wait) for queue in recording.queues() if queue.operators}
    for wait in recording.waits():
        if (
            wait.wait in _KINDS
            and not is_library(wait.site)
            and not is_every_step(recording, wait)
            and kind_at(wait.site, wait.wait) in busy
        ):
            yield wait
