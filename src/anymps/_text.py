"""Words, numbers, sizes and times as all messages format them. Plain ASCII, except for text from the script."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from collections.abc import Container, Mapping, Sequence
from typing import Final

_ORDERS: Final = re.compile(
    r"##(?=\[)|::(?=(?:add-mask|add-matcher|add-path|debug|echo|endgroup|error|group|notice|remove-matcher|save-state"
    r"|set-env|set-output|stop-commands|warning)\b)",
    re.IGNORECASE,
)
"""Where an order to GitHub's runner begins: at the begin of a line, which a long name may be broken at anywhere."""


def clean(text: str) -> str:
    """Text from the script or its environment as any message shows it: on one line, and an order to nobody.

    Control characters, which order a terminal, are written out, and so is the beginning of what orders GitHub's log.
    """
    return _ORDERS.sub(lambda match: rf"\x{ord(match[0][0]):02x}{match[0][1:]}", printable(text))


def printable(text: str) -> str:
    """Text on one line and without control characters. What it says to GitHub's log still counts there."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text.expandtabs(4)
    )


def workflow_command(level: str, properties: Mapping[str, str], message: str) -> str:
    """A line from which a workflow of GitHub makes an annotation.

    Form and escapes: docs.github.com, "Workflow commands for GitHub Actions", and actions/toolkit,
    packages/core/src/command.ts. Nothing in it turns the direction of what follows, or is a control character.
    """
    words = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in properties.items())
    return f"::{level} {words}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    lines = "\n".join(map(clean, text.split("\n")))
    for character in f"%\n{more}":
        lines = lines.replace(character, f"%{ord(character):02X}")
    return lines


def base_name(operator: str) -> str:
    """`aten::add_.Tensor` as `add`: without namespace, overload and the underscore of its form in place."""
    name = operator.rpartition("::")[2].partition(".")[0]
    return name if name.startswith("__") else name.rstrip("_")


OWN_KERNELS = "PyTorch's own kernels"


def kernels_of(release: str, torch: str) -> str:
    """What a sentence calls Metal kernels of a release: whose they are, where not the installed torch's."""
    return f"the kernels of torch {release}" if release and release != torch.partition("+")[0] else OWN_KERNELS


def means_release(text: str, release: str) -> bool:
    """Whether a text names a release: `2.15` and `2.15.0` both mean 2.15.0."""
    return release == text or release.startswith(f"{text}.")


def last_line(printed: str) -> str:
    """The last words of a process that ended badly, for a sentence about it."""
    lines = [line for line in printed.splitlines() if line.strip()]
    return lines[-1].removeprefix("anymps: ") if lines else "it gave no reason"


def first_line(message: str) -> str:
    """The first words of a message over several lines, as one line; empty where it says nothing."""
    return message.strip().partition("\n")[0].rstrip()


def error_words(exception: str, message: str) -> str:
    """`TypeError: what it says`, as Python prints an exception, with the first line of its message alone."""
    first = first_line(message)
    return f"{exception}: {first}" if first else exception


def severity_word(label: str) -> str:
    """What people read for a severity or a state: `note` for `info`; the others are words already."""
    return "note" if label == "info" else label


def plural(number: int, word: str) -> str:
    """`1 step`, `3 steps`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def listed(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`; with "or" as `last`, `a or b`."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def aligned(rows: Sequence[Sequence[str]], names: Container[int]) -> list[str]:
    """A table as lines: the columns with these numbers hold names, the others numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place in names else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def step_name(step: int) -> str:
    """`step 3`, of the step with the number 2: recordings count from 0, and people from 1, as trainers' logs do."""
    return f"step {step + 1:,}"


def percent(share: float, least: float = 1.0) -> str:
    """A share of one as people write it: `12 %`, `1,234 %`; what rounds to less than `least` per cent as `<1 %`.

    With a smaller `least` it has two or three digits: `0.84 %`, `31.4 %`, and with 0.001 at least `<0.001 %`.
    """
    number = 100 * share
    if not math.isfinite(number):
        return "infinity"
    if 0 < number < least:
        return f"{'<' if number < least / 2 else ''}{least:g} %"
    if least >= 1 or number >= 999.5:
        return f"{number:,.0f} %"
    return f"{number:.{3 if number >= 10 else 2}g} %"


def size(number: float) -> str:
    """A number of bytes: `312 B`, `4 KiB`, `1.5 MiB`; the empty text for nothing."""
    if number == 0:
        return ""
    if number < 1024:
        return f"{max(number, 1):.0f} B"
    unit = "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if round(number / 1024, 1) < 1024:
            break
        number /= 1024
        unit = larger
    return f"{number / 1024:,.1f}".removesuffix(".0") + f" {unit}"


def duration(nanoseconds: float) -> str:
    """A time in the unit that suits it: `850 ns`, `12.3 us`, `4.56 ms`, `1.20 s`; the empty text for nothing."""
    if nanoseconds <= 0:
        return ""
    factor, unit = _unit(nanoseconds)
    return f"{_digits(nanoseconds / factor)} {unit}"


def duration_short(nanoseconds: float) -> str:
    """A round time without zeros behind the point, as an axis has it: `0`, `5 ms`, `2.5 s`."""
    factor, unit = _unit(nanoseconds)
    return f"{nanoseconds / factor:g} {unit}" if nanoseconds else "0"


def duration_range(low: float, high: float) -> str:
    """Two times in one unit: `0.30 to 0.60 ms`; one time where both read the same."""
    factor, unit = _unit(high)
    if duration(low) == duration(high):
        return duration(high) or "0"
    if unit != "ns" and low >= factor / 20:
        return f"{_digits(low / factor)} to {_digits(high / factor)} {unit}"
    return f"{duration(low) or '0'} to {duration(high)}"


def estimate(seconds: float, low: float, high: float) -> tuple[str, str]:
    """A time in seconds and its interval, in the unit that suits the time: `909 us` and `606 to 1,510 us`.

    A range so wide that this unit does not suit its ends has its own.
    """
    factor, unit = _unit(1e9 * seconds)
    low, high = 1e9 * low, 1e9 * high
    if low < factor / 20 or high >= 1e4 * factor:
        return duration(1e9 * seconds), duration_range(low, high)
    return duration(1e9 * seconds), f"{_rounded(low / factor)} to {_rounded(high / factor)} {unit}"


def _unit(nanoseconds: float) -> tuple[float, str]:
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if nanoseconds >= 0.9995 * factor:
            return factor, unit
    return 1.0, "ns"


def _rounded(number: float) -> str:
    """With three digits, as an interval's ends are known no better."""
    return _digits(float(f"{number:.3g}"))


def _digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def tell(text: object) -> None:
    """Print a text on standard error."""
    if sys.stderr is None:  # `print` would take it for standard output
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a script may have replaced it
        print(text, file=sys.stderr, flush=True)


def can_tell() -> None:
    """Have a standard error where there is none, so that no file gets its number, and no library stumbles."""
    if sys.stderr is None:  # closed by whoever started us (`2>&-`)
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - to the end of the process


def forget_untold() -> None:
    """Drop what standard error could not take, which Python would try again at its end, and end with 120 for it."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
