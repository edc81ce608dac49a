"""Error messages for a kernel that was stopped: bad access, division by zero, an interrupt."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from anymps.metal._runtime import FAULTS, NO_STACKS, SECONDS_VARIABLE, Report, shader_seconds

_NEAR = 1 << 20
_GROUP = 2  # of `Report.known` in runtime/launch.h
_UNALIGNED = (1 << 64) - 1  # as runtime/guard.cpp reports it


def fault_text(name: str, report: Report, ranges: Sequence[tuple[int, int, int]], missing: int) -> str:
    """One sentence or two. `ranges` are (argument, address, bytes) of the buffers; `missing` buffers were not given."""
    if report.signal == NO_STACKS:
        return (
            f"anymps: the threads of the Metal kernel '{name}' need stacks, and this system gives no memory for them. "
            "Use smaller threadgroups, or raise the limit of memory (ulimit -v) or of mappings (vm.max_map_count)"
        )
    number = signal.Signals(report.signal)
    if number == signal.SIGXCPU:
        # pytorch pull request 193571 (August 2026): a command buffer that was aborted passes without a word.
        return (
            f"anymps: the Metal kernel '{name}' ran for more than {shader_seconds():g} s and was stopped. A Mac stops "
            f"one after some seconds and continues with wrong numbers. {SECONDS_VARIABLE} sets another limit"
        )
    address = report.address or 0
    unaligned = address == _UNALIGNED and number in (signal.SIGSEGV, signal.SIGBUS)
    what = "read or wrote memory that does not exist, or that is misaligned for its vector" if unaligned else ""
    text = f"anymps: the Metal kernel '{name}' {what or FAULTS.get(number, f'was stopped by {number.name}')}"
    where = f"({', '.join(map(str, report.position))})"
    if report.known:
        text += (
            f", in the threadgroup at {where}" if report.known == _GROUP else f", in the thread at {where} of the grid"
        )
    if number in (signal.SIGSEGV, signal.SIGBUS) and not unaligned:
        place = _place(address, ranges)
        if place:
            text += f": {place}"
        elif missing and address < _NEAR:
            text += f": it has {missing} more buffer{'s' if missing > 1 else ''} than the call gave it"
    return text + ". On a Mac this is not caught, and the result is undefined"


def stray_text(name: str, argument: int, offset: int, count: int, size: int, compiled: bool = False) -> str:
    """One sentence or two on bytes that a kernel wrote beside an argument's buffer of `size` bytes."""
    side = "before the start" if offset < 0 else "past the end"
    many = f"{count:,} bytes" if count > 1 else "1 byte"
    text = (
        f"anymps: the Metal kernel '{name}' wrote {many} {side} of argument {argument}, starting at byte {offset:,} of "
        f"{size:,}. On a Mac this is not caught and overwrites other data"
    )
    return text if compiled else f"{text}; ANYMPS_CHECK_SHADERS=all names the line of the kernel"


def _place(address: int, ranges: Sequence[tuple[int, int, int]]) -> str:
    """Where an address lies beside the nearest buffer; empty if none is near."""
    best: tuple[int, str] = (_NEAR, "")
    for index, start, size in ranges:
        if start <= address < start + size:
            return f"within argument {index}"
        if address >= start + size:
            best = min(
                best, (address - start - size, f"{address - start - size} bytes past the end of argument {index}")
            )
        else:
            best = min(best, (start - address, f"{start - address} bytes before the start of argument {index}"))
    return best[1]
