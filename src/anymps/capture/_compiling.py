"""Graph breaks, recompilations and kernels of torch.compile: marks on the tape, and the lines of each kernel.

The first two come from Dynamo's own functions that log them.

`symbolic_convert.log_graph_break`, and `get_and_maybe_log_recompilation_reasons` and `exceeds_recompile_limit` as
`convert_frame` calls them, are alike in torch 2.11 to 2.15. Dynamo is not imported here: it is watched once the
program has it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from anymps._text import first_line
from anymps.capture._core import Core, Undo, note_facts, stand_in
from anymps.capture._generated_kernels import CodeLine, KernelLines, miscompiled, repeated_scatters, scattering_nodes

_DYNAMO = "torch._dynamo.convert_frame"
_ASKED_FOR = ("Call to `torch._dynamo.graph_break()`", "Skip calling `torch.compiler.disable()`d function")
"""Kinds of breaks that the code asks for."""
_SKIPPED = "Failed to handle graph break gracefully"
"""How Dynamo's reason begins where it cannot go on after the break, as in a loop: it leaves the function uncompiled."""
_LONGEST = 300  # characters of a reason or a guard
_NOWHERE = CodeLine("", 0, "")


class _Recompiled(NamedTuple):
    """A function whose guards have failed, and the first guard that did."""

    code: Any
    guard: str


class CompileWatch:
    """Writes what Dynamo does at compile time. Costs nothing where nothing is compiled."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._undo: list[Undo] = []
        self._loaded = False
        self._writing = False
        self._noted_lines: set[tuple[int, str]] = set()
        self._lines = KernelLines(core.is_internal)
        self._scatter_sites: dict[str, int] = {}  # by the name of a kernel that was written and not compiled yet
        self._recompiled: _Recompiled | None = None  # Dynamo compiles under a lock of its own

    def start(self) -> Callable[[], None]:
        """Start to watch, Dynamo as soon as the program loads it (`loaded`); what is returned ends it."""
        compiled = self._core.watch_calls(torch.mps.compile_shader, self._shader)
        self._replace(torch.mps, "compile_shader", _telling(compiled, self._library))
        inductor = torch._TorchCompileInductorWrapper
        self._replace(inductor, "__call__", self._core.watch_calls(inductor.__call__, self._inductor))
        self.loaded()
        return self._stop

    def loaded(self) -> None:
        """The program may have loaded Dynamo: watch it from now on."""
        frames = sys.modules.get(_DYNAMO)
        symbolic = sys.modules.get("torch._dynamo.symbolic_convert")
        if self._loaded or frames is None or symbolic is None:
            return
        self._loaded = True
        translator = symbolic.InstructionTranslatorBase
        self._replace(translator, "log_graph_break", self._core.watch_calls(translator.log_graph_break, self._broken))
        self._replace(
            frames,
            "get_and_maybe_log_recompilation_reasons",
            _telling(frames.get_and_maybe_log_recompilation_reasons, self._guards_failed),
        )
        looked_at = _telling(frames.exceeds_recompile_limit, self._limit_looked_at)
        self._replace(frames, "exceeds_recompile_limit", looked_at)

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

    def _site(self, line: CodeLine) -> int:
        return self._core.site(*line, "")

    def _broken(self, _: Any, *given: Any, **named: Any) -> None:
        error = named.get("exc", given[-1] if given else None)
        if getattr(error, "logged", True):
            return  # as an outer function's
        text = str(error)
        kind = _short(first_line(text))
        if kind in _ASKED_FOR:
            return
        explanation = re.search(r"^\s*Explanation: (.*)", text, re.MULTILINE)
        stack = getattr(error, "real_stack", None) or ()
        place = next((frame for frame in reversed(stack) if not self._core.is_internal(frame.filename)), None)
        call = self._core.current_site()
        site = call if place is None else self._core.site(place.filename, place.lineno or 0, place.name, "")
        if (site, kind) not in self._noted_lines:
            self._noted_lines.add((site, kind))
            note_facts(
                self._core,
                "graph_break",
                site,
                call,
                {
                    "kind": kind,
                    "explanation": _short(explanation[1]) if explanation is not None else "",
                    "skipped": str(named.get("reason")).startswith(_SKIPPED),
                },
            )

    def _guards_failed(self, reasons: Any, _: Any, frame: Any, *given: Any, **named: Any) -> None:
        if not named.get("skip_logging", False):
            self._recompiled = _Recompiled(frame.f_code, _guard(str(reasons[0])) if reasons else "")

    def _limit_looked_at(self, answer: Any, *_: Any) -> None:
        recompiled, self._recompiled = self._recompiled, None
        if recompiled is None:
            return
        code, guard = recompiled
        exceeded, limit = answer
        call = self._core.current_site()
        internal = self._core.is_internal(code.co_filename)  # such as an optimizer's step
        site = call if internal else self._core.site(code.co_filename, code.co_firstlineno, code.co_name, "")
        facts = {"guard": guard, "limit": str(limit) if exceeded else "", "within": code.co_name if internal else ""}
        note_facts(self._core, "recompiled", site, call, facts)


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


def _guard(reason: str) -> str:
    """`s.n == 3` of `0/3: s.n == 3      # s.n += 1  # net.py:92 in forward (HINT: ...)` and the stack below."""
    line = re.sub(r"^\d+/\d+: ", "", first_line(reason))
    return _short(line.partition("  #")[0].partition(" (HINT")[0])
