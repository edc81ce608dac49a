"""What Metal source shows: Inductor's kernels, a scatter that each thread repeats, what Apple's compiler gets wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

_KERNEL = re.compile(r"kernel\s+void\s+(generated_kernel\w*)\s*\(")
_GROUP = re.compile(r"max_total_threads_per_threadgroup\((\d+)\)")
_ASSIGNED = re.compile(r"^(?:[\w:<>*]+\s+)*?(?P<name>\w+)(?:\[[^\]]*\])?\s*[-+*/|&]?=(?!=)\s*(?P<value>.+);$")
_WORD = re.compile(r"[A-Za-z_]\w*")
_THREAD = re.compile(r"^r\d_index$")  # the thread's place in its group
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_QUOTIENT = r"\b[\w.\[\]]+\s*/\s*65536[uUlL]*"
_REMAINDER = re.compile(rf"(?:\(\s*{_QUOTIENT}\s*\)|{_QUOTIENT})\s*%\s*(?P<by>\d{{1,9}})[uUlL]*\b")

_SCATTERS = ("index_put", "index_add", "scatter", "embedding_dense_backward")


class GeneratedKernel(NamedTuple):
    """A kernel of a Metal source: what stands before its name, and its arguments and code."""

    name: str
    before: str
    body: str


class RepeatedScatter(NamedTuple):
    """A kernel whose threads all add the same: how many there are in a group, 0 if the source does not say."""

    kernel: str
    threads: int


def kernels_of(source: str) -> Iterator[GeneratedKernel]:
    """The kernels that Inductor has written into a Metal source."""
    found = list(_KERNEL.finditer(source))
    for kernel, after in zip_longest(found, found[1:]):
        body = source[kernel.end() : after.start() if after else len(source)]
        before = source[: kernel.start()].rpartition("}")[2]
        yield GeneratedKernel(kernel[1], before, body[: body.rfind("}") + 1])


def repeated_scatters(source: str) -> Iterator[RepeatedScatter]:
    """The kernels in which every thread of a group adds the result of a reduction to one place.

    `MetalKernel.store` of torch/_inductor/codegen/mps.py writes `atomic_add` without the `if (r0_index == 0)` that
    `store_reduction` has. An addition that differs from thread to thread is right: its place or its value comes from
    the thread's index.
    """
    if "atomic_add(" not in source:
        return
    for kernel in kernels_of(source):
        group = _GROUP.search(kernel.before)
        if "r0_index" in kernel.body and (group is None or int(group[1]) > 1) and _repeats(kernel.body):
            yield RepeatedScatter(kernel.name, int(group[1]) if group else 0)


def miscompiled(source: str) -> Iterator[str]:
    """`(i / 65536) % 6`, each once: the one pattern that torch/_inductor/codegen/mps.py avoids since torch 2.11.

    By a power of two it is right. Only integers have a remainder in Metal.
    """
    found = _REMAINDER.finditer(_COMMENT.sub(" ", source)) if "65536" in source else ()
    yield from dict.fromkeys(one[0] for one in found if int(one["by"]).bit_count() > 1)


def _repeats(body: str) -> bool:
    own: set[str] = set()  # what differs from thread to thread

    def differs(text: str) -> bool:
        return any(word in own or _THREAD.match(word) for word in _WORD.findall(text))

    for line in map(str.strip, body.splitlines()):
        if "atomic_add(" in line:
            if not differs(line):
                return True
            continue
        assigned = _ASSIGNED.match(line)
        if assigned is not None:
            if "threadgroup_" in assigned["value"] or not differs(assigned["value"]):
                own.discard(assigned["name"])
            else:
                own.add(assigned["name"])
    return False


def scattering_nodes(scheduled: Iterable[Any]) -> Iterator[Any]:
    """The additions at an index in what Inductor makes one kernel of, as nodes of the graph that it came from.

    Its own nodes (torch/_inductor/scheduler.py) know them as their origins.
    """
    for part in scheduled:
        for origin in getattr(getattr(part, "node", None), "origins", None) or ():
            if any(name in str(origin.target) for name in _SCATTERS):
                yield origin
