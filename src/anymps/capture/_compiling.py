"""Kernels of torch.compile: marks of what their sources show, the lines of each kernel, and packages of AOTInductor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import torch

from anymps.capture._core import Core, Finish, Undo, note_facts, stand_in
from anymps.capture._generated_kernels import CodeLine, KernelLines, miscompiled, repeated_scatters, scattering_nodes

_LONGEST = 300  # characters of an expression
_NOWHERE = CodeLine("", 0, "")


class CompileWatch:
    """Watches what Inductor writes and compiles. Costs nothing where nothing is compiled."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._undo: list[Undo] = []
        self._writing = False
        self._lines = KernelLines(core.is_internal)
        self._scatter_sites: dict[str, int] = {}  # by the name of a kernel that was written and not compiled yet
        self._packages = WeakKeyDictionary[Any, Path]()  # of which no program has run yet

    def start(self) -> Callable[[], None]:
        """Start to watch; what is returned ends it."""
        compiled = self._core.watch_calls(torch.mps.compile_shader, self._shader)
        self._replace(torch.mps, "compile_shader", _telling(compiled, self._library))
        inductor = torch._TorchCompileInductorWrapper
        self._replace(inductor, "__call__", self._core.watch_calls(inductor.__call__, self._inductor))
        loader: Any = torch._C._aoti.AOTIModelPackageLoader
        self._replace(loader, "__init__", self._core.watch_calls(loader.__init__, self._package))
        self._replace(loader, "boxed_run", self._core.watch_calls(loader.boxed_run, self._package_runs))
        return self._stop

    def _stop(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _replace(self, owner: Any, name: str, replacement: Any) -> None:
        self._undo.append(stand_in(owner, name, replacement))

    def _inductor(self, _: Any, graph: Any, *__: Any, **___: Any) -> None:
        """Inductor begins with a graph of Dynamo's. Its Metal backend is loaded here, as it would be a moment later."""
        self._lines.add_graph(graph.graph.nodes)
        if not self._writing:
            from torch._inductor.codecache import PyCodeCache
            from torch._inductor.codegen.mps import MetalScheduling

            self._writing = True
            written = _telling(MetalScheduling.define_kernel, self._kernel_written)
            self._replace(MetalScheduling, "define_kernel", written)
            loaded = _telling(PyCodeCache.load_by_key_path, self._module_loaded)
            self._replace(PyCodeCache, "load_by_key_path", staticmethod(loaded))

    def _kernel_written(self, name: Any, _: Any, source: Any, scheduled: Any, *__: Any) -> None:
        self._lines.add_kernel(str(source), scheduled)
        # In torch 2.11 the name is that of a library with one kernel, and no line is found.
        for line in filter(None, map(self._lines.line_of, scattering_nodes(scheduled))):
            self._scatter_sites.setdefault(str(name), self._site(line))

    def _module_loaded(self, _: Any, __: Any, path: Any, linemap: Any = None, *___: Any, **____: Any) -> None:
        """The module of a graph, new or from Inductor's cache, is about to run; those of single kernels have no map."""
        if linemap:
            lines = self._lines.of_module(str(path), linemap)
            self._core.place_lines(str(path), {first: line or _NOWHERE for first, line in lines.items()})

    def _shader(self, source: Any, *_: Any, **__: Any) -> None:
        # A graph's kernels are compiled right after they were written. Of those in Inductor's cache the lines are
        # known, not which of them scatters.
        sites, self._scatter_sites = self._scatter_sites, {}
        call = self._core.current_site()
        for expression in miscompiled(str(source)):
            note_facts(self._core, "miscompiled", call, 0, {"expression": _short(expression)})
        for scatter in repeated_scatters(str(source)):
            lines = self._lines.of_library(str(source)).get(scatter.kernel)
            known = call if lines is None else self._site(lines[0])
            note_facts(self._core, "repeated_scatter", sites.get(scatter.kernel, known), call, scatter._asdict())

    def _library(self, library: Any, source: Any, *_: Any, **__: Any) -> None:
        """A library is compiled. Its kernels run at the first of their lines; torch's own do not come by the tape."""
        place_kernel = getattr(library, "place_kernel", None)
        if place_kernel is not None:
            for kernel, lines in self._lines.of_library(str(source)).items():
                place_kernel(kernel, lines[0])
                for line in lines[1:]:
                    note_facts(self._core, "fused", self._site(lines[0]), self._site(line), {"kernel": kernel})

    def _package(self, loader: Any, path: Any, *_: Any, **__: Any) -> None:
        self._packages[loader] = Path(str(path))

    def _package_runs(self, loader: Any, *_: Any) -> Finish | None:
        path = self._packages.pop(loader, None)
        if path is None or loader.get_metadata().get("AOTI_DEVICE_KEY") != "mps":
            return None
        size = 0
        with suppress(OSError):  # one that was a stream is gone by now
            size = path.stat().st_size
        site, begin = self._core.current_site(), perf_counter()

        def through(error: BaseException | None) -> None:
            if error is None:
                facts = {"name": path.name, "bytes": size, "seconds": perf_counter() - begin}
                note_facts(self._core, "package", site, 0, facts)

        return through

    def _site(self, line: CodeLine) -> int:
        return self._core.site(*line, "")


def _telling(original: Callable[..., Any], told: Callable[..., None]) -> Callable[..., Any]:
    """The same function, which tells of its answer and what it was given."""

    def watched(*given: Any, **named: Any) -> Any:
        answer = original(*given, **named)
        told(answer, *given, **named)
        return answer

    return watched


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
