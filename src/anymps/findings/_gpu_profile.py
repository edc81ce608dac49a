"""GPU time by line, from the table that torch's own profiler prints on a Mac (`PYTORCH_MPS_LOG_PROFILE_INFO`).

The table has a row for each operation: a graph (G) or a kernel (K), its runs and its GPU time in ms. The row's name
begins with the operator or with the Metal kernel, and names the sizes of the tensors. It knows no lines: the time of a
row goes to the recorded calls that suit the name and the sizes, to each call alike.

Source: aten/src/ATen/mps/MPSProfiler.mm (`logOperationsProfilingStats`), torch 2.7 to 2.15, and a log in tinygrad issue
1167. It was not tried on a Mac.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from anymps._text import base_name
from anymps.record import Recording, Site

_ROW: Final = re.compile(r"^\s*[GK]\d+\s+(\d{1,12})\s+[\d.]+\s+[\d.]+\s+(\d{1,12}\.\d{1,6})\s+(\S.*)$", re.MULTILINE)
_SIZES: Final = re.compile(r"\[([\d, ]+)\]")
_CALLS: Final = (
    "SELECT signature, site, COUNT(*) FROM entries GROUP BY signature, site "
    "UNION ALL SELECT signature, site, SUM(count) FROM totals GROUP BY signature, site"
)


@dataclass(frozen=True)
class ProfiledOperation:
    """A row of the table: its name with the sizes, how often it ran, and its GPU time in all, in ns."""

    name: str
    runs: int
    gpu_ns: int


@dataclass(frozen=True)
class LineOnGpu:
    """What the GPU spent on a line's calls, in ns, and on which operators."""

    site: Site
    gpu_ns: int
    operators: tuple[str, ...]


@dataclass(frozen=True)
class GpuProfile:
    """The whole table: its GPU time in ns, what of it belongs to lines, most first, and the names without a call."""

    gpu_ns: int
    lines: tuple[LineOnGpu, ...]
    unknown: tuple[ProfiledOperation, ...]


def read_operations(log: str) -> tuple[ProfiledOperation, ...]:
    """The rows of the table in a log, which may have other lines before and behind; none if there is no table."""
    rows = (ProfiledOperation(name.strip(), int(runs), round(float(ms) * 1e6)) for runs, ms, name in _ROW.findall(log))
    return tuple(rows)


def gpu_profile(recording: Recording, operations: tuple[ProfiledOperation, ...]) -> GpuProfile:
    """The time of the operations by line of the recorded run."""
    calls = list(_calls(recording))
    names = {base for base, _, _, _ in calls}
    by_line: defaultdict[Site, int] = defaultdict(int)
    on_line: defaultdict[Site, set[str]] = defaultdict(set)
    unknown = []
    for operation in operations:
        operator = _operator(operation.name, names)
        of_it = [call for call in calls if call[0] == operator]
        sizes = set(map(_plain, _SIZES.findall(operation.name)))
        suiting = [call for call in of_it if sizes & call[1]] or of_it
        count = sum(number for *_, number in suiting)
        if not count:
            unknown.append(operation)
        for _, _, site, number in suiting:
            by_line[site] += round(operation.gpu_ns * number / count)
            on_line[site].add(operator)
    lines = [LineOnGpu(site, time, tuple(sorted(on_line[site]))) for site, time in by_line.items()]
    return GpuProfile(
        sum(operation.gpu_ns for operation in operations),
        tuple(sorted(lines, key=lambda line: (-line.gpu_ns, line.site.file, line.site.line))),
        tuple(unknown),
    )


def _calls(recording: Recording) -> Iterator[tuple[str, frozenset[str], Site, int]]:
    """The recorded calls: the operator's plain name, the sizes of its tensors, the line, and how many there are."""
    for signature, site, count in recording.stream(_CALLS):
        call = recording.signature(signature)
        sizes = frozenset(_plain(size) for text in (*call.inputs, *call.outputs) for size in _SIZES.findall(text))
        yield base_name(call.operator).strip("_"), sizes, recording.site(site), count


def _operator(name: str, known: set[str]) -> str:
    """The recorded operator that the name of a graph or a kernel begins with, the longest; empty if there is none."""
    plain = name.removeprefix("aten::").removeprefix("mps_").lstrip("_")
    begun = (one for one in known if re.match(rf"{re.escape(one)}(?![a-z0-9])", plain))
    return max(begun, key=len, default="")


def _plain(sizes: str) -> str:
    return sizes.replace(" ", "")
