"""MPS834 and MPS835: functions that torch.compile compiles again and again, and those it gives up for that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from anymps.findings._loop import count_of, uses_mps
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.record import Noted, Recording

_SOURCE: Final = (
    "torch/_dynamo/convert_frame.py (get_and_maybe_log_recompilation_reasons, exceeds_recompile_limit), torch 2.11 to "
    "2.15"
)
_FIX: Final = (
    "Keep the value that the guard checks the same in every call. `TORCH_LOGS=recompiles` prints every guard "
    "that fails."
)
_EXAMPLE: Final = """
    @torch.compile(backend="eager")
    def scale(x, name):
        return x * len(name)


    for step in range({steps}):
        scale(torch.ones(3, device=device), {name})
"""

AGAIN = Rule(
    id="MPS834",
    title="Function recompiled repeatedly",
    severity=Severity.WARNING,
    why=(
        "A compiled function is valid only while its guards hold: sizes, numbers, attributes. When one fails, the "
        "call waits for Dynamo, Inductor and Metal's compiler, which takes seconds. One recompilation is normal: it "
        "makes a changing size dynamic."
    ),
    fix=_FIX,
    related_as="called at",
    source=_SOURCE,
    example=Example(
        bad=_EXAMPLE.format(steps=5, name='f"step {step}"'),
        good=_EXAMPLE.format(steps=5, name='"step"'),
    ),
)

LIMIT = Rule(
    id="MPS835",
    title="torch.compile gave up after too many recompilations",
    severity=Severity.WARNING,
    why=(
        "After 8 recompilations (`torch._dynamo.config.recompile_limit`), a call that fits no compiled version runs "
        "uncompiled, operator by operator. The time spent compiling is lost."
    ),
    fix=_FIX,
    related_as="called at",
    source=_SOURCE,
    example=Example(
        bad=_EXAMPLE.format(steps=12, name='f"step {step}"'),
        good=_EXAMPLE.format(steps=12, name='"step"'),
    ),
)

_LEAST = 3  # recompilations: sizes become dynamic, and a size of 1 or an evaluation takes one more

_EXPECTED: Final = re.compile(r"GLOBAL_STATE changed|\.training\b")
"""Guards that fail once for an evaluation and once for the training."""

_FIXES: Final = (
    (
        r"(size|stride|shape|rank) mismatch|\.size\(\)|\.stride\(\)",
        "Keep the sizes: pad batches, or give the DataLoader `drop_last=True`. Where sizes must change, compile with "
        "`dynamic=True`, or say which with `torch._dynamo.mark_dynamic(x, 0)`.",
    ),
    (r"\['lr'\]", "Make the learning rate a tensor when you make the optimizer: `lr=torch.tensor(0.001)`."),
    (
        r"^(?P<name>[A-Za-z_]\w*\.[\w.]+) == -?[\d.]+",
        "Keep `{name}` out of the compiled function, or make it a buffer, a tensor of the module.",
    ),
    (
        r"^(?P<name>[A-Za-z_]\w*) == -?[\d.]+",
        "Pass `{name}` as a tensor, `torch.tensor({name})`: torch.compile recompiles for each Python number.",
    ),
)


def find(recording: Recording) -> Iterator[Finding]:
    """One finding for each function."""
    if not uses_mps(recording):
        return
    functions: dict[tuple[str, int, str], list[Noted]] = {}
    for again in recording.noted("recompiled"):
        site = again.occurrence.site
        functions.setdefault((*site.file_line, str(again.facts.get("within"))), []).append(again)
    for marks in functions.values():
        limit = next((mark for mark in marks if mark.facts.get("limit")), None)
        failed = [mark for mark in marks if not _EXPECTED.search(_guard(mark)) and not mark.facts.get("limit")]
        count = count_of(failed)
        if limit is not None:
            compiled = 1 + count_of(mark for mark in marks if not mark.facts.get("limit"))
            reached = f"`torch._dynamo.config.{limit.facts['limit']}` was reached"
            what = f"{_name(limit)} was compiled {compiled} times, then ran uncompiled: {reached}."
            yield _finding(LIMIT, limit, what, limit.occurrence.count)
        elif count >= _LEAST:
            yield _finding(AGAIN, failed[-1], f"{_name(failed[-1])} was compiled {count + 1} times.", count)


def _finding(rule: Rule, last: Noted, what: str, count: int) -> Finding:
    guard = _guard(last)
    said = f" The guard that failed last: `{guard}`." if guard else ""
    site, call = last.occurrence.site, last.other
    related = [call] if call.file_line != site.file_line else []
    return rule.finding(site, what=what + said, count=count, fix=_fix(guard), related_sites=related)


def _fix(guard: str) -> str:
    for pattern, fix in _FIXES:
        found = re.search(pattern, guard)
        if found is not None:
            return fix.format(**found.groupdict())
    return ""


def _guard(mark: Noted) -> str:
    return str(mark.facts.get("guard", ""))


def _name(mark: Noted) -> str:
    name = mark.facts.get("within") or mark.occurrence.site.function
    return f"`{name}`" if name else "A function"
