"""Inductor's kernels: what their Metal source shows, and which lines of the program they compute.

A source may show a scatter that each thread repeats, or an expression that Apple's compiler gets wrong. Inductor writes
its code once, and finds it in its cache later. That code names no lines, or outdated ones. So a file beside it keeps
nodes of Dynamo's graph, which the cache has compared: lines move when the program is edited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from anymps._atomic import replacing

_KERNEL = re.compile(r"kernel\s+void\s+(generated_kernel\w*)\s*\(")
_GROUP = re.compile(r"max_total_threads_per_threadgroup\((\d+)\)")
_ASSIGNED = re.compile(r"^(?:[\w:<>*]+\s+)*?(?P<name>\w+)(?:\[[^\]]*\])?\s*[-+*/|&]?=(?!=)\s*(?P<value>.+);$")
_WORD = re.compile(r"[A-Za-z_]\w*")
_THREAD = re.compile(r"^r\d_index$")  # the thread's place in its group
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_QUOTIENT = r"\b[\w.\[\]]+\s*/\s*65536[uUlL]*"
_REMAINDER = re.compile(rf"(?:\(\s*{_QUOTIENT}\s*\)|{_QUOTIENT})\s*%\s*(?P<by>\d{{1,9}})[uUlL]*\b")

_SCATTERS = ("index_put", "index_add", "scatter", "embedding_dense_backward")
_FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')
_FOLDER = "anymps-lines"
_MOST_GRAPHS = 512


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


class CodeLine(NamedTuple):
    """A line of the program."""

    file: str
    number: int
    function: str


class KernelLines:
    """Learns of graphs and of kernels as they are written; answers when a library of kernels is compiled."""

    def __init__(self, is_internal: Callable[[str], bool]) -> None:
        self._is_internal = is_internal
        self._graphs: dict[str, list[CodeLine | None]] = {}  # by fingerprint, the latest last; a line for each node
        self._written: dict[str, list[CodeLine | None]] = {}

    def add_graph(self, nodes: Iterable[Any]) -> None:
        """Dynamo hands the nodes of a graph (torch.fx.Node) to Inductor."""
        nodes = list(nodes)
        told = "\n".join(f"{node.op} {node.name}" for node in nodes)
        fingerprint = sha256(told.encode()).hexdigest()
        self._graphs.pop(fingerprint, None)
        self._graphs[fingerprint] = [self.line_of(node) for node in nodes]
        if len(self._graphs) > _MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]

    def add_kernel(self, source: str, scheduled: Iterable[Any]) -> None:
        """Inductor has written a kernel for these nodes (torch/_inductor/scheduler.py), which know their origins."""
        origins = [node for part in scheduled for node in getattr(getattr(part, "node", None), "origins", None) or ()]
        lines = {line for line in map(self.line_of, origins) if line is not None}
        fingerprint, graph = self._graph_with(lines)
        nodes = sorted(graph.index(line) for line in lines) if graph else []
        for kernel in kernels_of(source) if nodes else ():
            key = _key(kernel.body)
            self._written[key] = [graph[node] for node in nodes]
            _keep(key, {"graph": fingerprint, "nodes": dict(enumerate(nodes))})

    def of_library(self, source: str) -> dict[str, list[CodeLine]]:
        """The lines of the kernels in a Metal source, by name; kernels of unknown lines are left out."""
        found = {kernel.name: self._lines(_key(kernel.body)) for kernel in kernels_of(source)}
        return {name: lines for name, lines in found.items() if lines}

    def of_module(self, path: str, linemap: Sequence[tuple[int, str]]) -> dict[int, CodeLine | None]:
        """The lines that a module of Inductor's computes, by the first of its own that each holds for.

        `linemap` is Inductor's: where the code of a node begins, and the stack that the node carried when the module
        was written, which may be long ago.
        """
        key = Path(path).stem  # a hash of what the module says
        kept = self._kept(key)
        if kept is not None:
            return kept
        lines = {first: self._innermost(stack) for first, stack in linemap}
        fingerprint, graph = self._graph_with({line for line in lines.values() if line is not None})
        if not graph:
            return {}
        nodes = {first: None if line is None else graph.index(line) for first, line in lines.items()}
        _keep(key, {"graph": fingerprint, "nodes": nodes})
        return lines

    def line_of(self, node: Any) -> CodeLine | None:
        """The innermost line of the program in the stack that a node of a graph carries."""
        return self._innermost(node.meta.get("stack_trace"))

    def _innermost(self, stack: str | None) -> CodeLine | None:
        for file, line, function in reversed(_FRAME.findall(stack or "")):
            if not self._is_internal(file):
                return CodeLine(file, int(line), function.strip())
        return None

    def _graph_with(self, lines: set[CodeLine]) -> tuple[str, list[CodeLine | None]]:
        """The latest graph that has all these lines."""
        graphs = reversed(self._graphs.items())
        return next(((mark, known) for mark, known in graphs if lines and lines <= set(known)), ("", []))

    def _lines(self, key: str) -> list[CodeLine]:
        lines = self._written.get(key)
        if lines is None:
            lines = self._written[key] = list((self._kept(key) or {}).values())
        return [line for line in lines if line is not None]

    def _kept(self, key: str) -> dict[int, CodeLine | None] | None:
        """The lines by their places; None where they are not kept yet, or are of another program."""
        try:
            told = json.loads(_path(key).read_text("utf-8"))
            known = self._graphs[told["graph"]]
            return {int(place): None if node is None else known[node] for place, node in told["nodes"].items()}
        except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
            return None  # or no file of ours


def _keep(key: str, told: dict[str, object]) -> None:
    """Write it beside Inductor's cache; a disk that does not take it costs the lines alone."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(told).encode())
    except OSError:
        pass


def _key(body: str) -> str:
    return sha256(" ".join(body.split()).encode()).hexdigest()


def _path(key: str) -> Path:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir(), _FOLDER, f"{key}.json")
