"""The lines of the program that torch.compile's kernels and calls compute, from Inductor's nodes or beside its cache.

Inductor writes its code once, and finds it in its cache later. That code names no lines, or outdated ones. So a file
beside it keeps nodes of Dynamo's graph, which the cache has compared: lines move when the program is edited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from anymps._atomic import replacing
from anymps.capture._generated_kernels import kernels_of

_FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')
_FOLDER = "anymps-lines"
_MOST_GRAPHS = 512


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
