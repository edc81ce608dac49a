"""Tapes of steps in `benchmarks/times/steps/`: what a step does, in its order, as a recording has it.

A tape holds each different happening once, then the order as their numbers, each with the microseconds of the program's
own code before it, on a core of an M1 (left out below half of one). So a tape is predicted as a recording is. The code
is that of the machine that recorded the tape: Python, autograd, torch's dispatch, and nothing that a Mac does for a
call.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from anymps.cost import Happening, OperatorCall

TAPES = Path(__file__).parent / "times" / "steps"


def text_of(happening: Happening) -> str:
    """One happening, without its code and its place."""
    words: list[str] = [happening.kind]
    if happening.moved:
        words.append(f"moves={happening.moved}")
    if happening.waits and happening.kind != "wait":
        words.append("waits")
    if happening.work is not None:
        words.append(f"work={1e6 * happening.work:.0f}")
    if happening.call is not None:
        words.append(happening.call.text)
    return " ".join(words)


def happening_of(text: str) -> Happening:
    """A happening as `text_of` writes it."""
    kind, _, rest = text.partition(" ")
    moved, waits, work = 0, kind == "wait", None
    while rest.startswith(("moves=", "waits", "work=")):
        word, _, rest = rest.partition(" ")
        if word == "waits":
            waits = True
        elif word.startswith("moves="):
            moved = int(word.removeprefix("moves="))
        else:
            work = 1e-6 * float(word.removeprefix("work="))
    return Happening(kind, OperatorCall.parse(rest) if rest else None, 0.0, work, moved, waits)  # type: ignore[arg-type]


def write(name: str, step: Sequence[Happening]) -> None:
    """Write a tape."""
    texts = [text_of(happening) for happening in step if happening.kind != "wait" or happening.waits]
    numbers: dict[str, int] = {}
    for text in texts:
        numbers.setdefault(text, len(numbers))
    order, carried = [], 0.0
    for happening in step:
        carried += happening.host_code  # that before a mark of the recording is part of the next happening's
        if happening.kind == "wait" and not happening.waits:
            continue
        gap = round(1e6 * carried)
        order.append(f"{numbers[text_of(happening)]}:{gap}" if gap else str(numbers[text_of(happening)]))
        carried = 0.0
    if round(1e6 * carried):
        order.append(f"end:{round(1e6 * carried)}")
    lines = [*numbers, "", *textwrap.wrap(" ".join(order), 118)]
    (TAPES / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(name: str) -> list[Happening]:
    """What happens in a step, in its order."""
    head, _, order = (TAPES / f"{name}.txt").read_text(encoding="utf-8").partition("\n\n")
    known = [happening_of(line) for line in head.splitlines()]
    found = []
    for word in order.split():
        number, _, gap = word.partition(":")
        code = 1e-6 * float(gap or 0)
        found.append(
            Happening("wait", host_code=code) if number == "end" else known[int(number)]._replace(host_code=code)
        )
    return found
