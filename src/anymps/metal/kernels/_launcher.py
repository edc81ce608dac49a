"""Computes calls of operators with PyTorch's own kernels, if the launch is known, and counts them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from anymps._errors import KernelsError
from anymps.metal.kernels._hot import HotLaunches
from anymps.metal.kernels._launch_recipes import Recipe, recipe_of
from anymps.metal.kernels._llvm import llvm
from anymps.metal.kernels._support import support
from anymps.metal.kernels.launches import BEGINNINGS, BY_VALUES, DESCRIBED, TAKEN_ANEW, WHOLE, Call, Work

if TYPE_CHECKING:
    from anymps.metal.kernels._library import CompiledKernel, KernelLibrary

Answer = tuple["tuple[torch.Tensor, ...] | None", "Recipe | None", bool]
"""The results, or None for a call that no kernel is known for; and whether the next call of the same signature (dtypes,
sizes, strides, numbers) is to be computed by the recipe, or, without one, by no kernel either."""


def check_tools() -> None:
    """Raises KernelsError without llvmlite, and BuildError without a compiler for what kernels call."""
    llvm()
    support()


class Launcher:
    """What the device offers its calls to. Names of operators are whole: `aten::add.Tensor`."""

    def __init__(self, library: KernelLibrary, release: tuple[int, int], looks_back: bool = True) -> None:
        self._library = library
        self._hot = HotLaunches(library)
        self._release = release
        self._looks_back = looks_back
        self._schemas = {f"aten::{name}": schema for name, schema in _overloads()}
        self._lost: set[str] = set()  # kernels that this machine cannot run
        self._lock = threading.Lock()
        self.real: Counter[str] = Counter()
        """How many calls of each operator a kernel has computed here; those of recipes are counted by the device."""

    def operators(self) -> list[tuple[str, int, bool]]:
        """The operators that may have a described launch, in this release.

        With each, bits of the arguments that its launches take anew if they are floats, and whether it is offered even
        where torch makes it of others.
        """
        names = dir(self._library)
        without = {packet for packet, start in BEGINNINGS.items() if not any(name.startswith(start) for name in names)}
        return sorted(
            (name, self._anew(name), _packet(name) in WHOLE) for name in self._schemas if _packet(name) not in without
        )

    def _anew(self, operator: str) -> int:
        """Bit i: argument i."""
        names = [argument.name for argument in self._schemas[operator].arguments]
        name = TAKEN_ANEW.get(_packet(operator))
        return 1 << names.index(name) if name in names else 0

    def __call__(self, operator: str, arguments: list[Any], foreign: list[int]) -> tuple[torch.Tensor, ...] | None:
        """The results of a call on tensors of this machine's memory; None for one that no kernel is known for."""
        return self.answer(operator, arguments, foreign)[0]

    def answer(self, operator: str, arguments: list[Any], foreign: list[int]) -> Answer:
        """The same as the device asks for it."""
        schema = self._schemas[operator]
        names = [argument.name for argument in schema.arguments]
        call = Call(
            operator,
            dict(zip(names, arguments, strict=True)),
            tuple(value for value, one in zip(arguments, schema.arguments, strict=True) if one.is_write),
            frozenset(names[position] for position in foreign),
            self._library,
            self._release,
            self._looks_back,
        )
        with torch._C.DisableTorchFunction():  # a mode of the program's is not meant for what a call is made of
            before = {name: one.shape for name, one in call.given.items() if isinstance(one, torch.Tensor)}
            work = DESCRIBED[_packet(operator)](call)
            kernels = None if work is None else self._kernels(work)
            if work is None or kernels is None:
                return None, None, _packet(operator) not in BY_VALUES
            for one, kernel in zip(work.launches, kernels, strict=True):
                if not work.kept and 0 not in one.threads:  # described each time, so this is where it gets its own
                    kernel = self._hot.kernel_for(one, kernel, one.buffers, ()) or kernel
                kernel.run(one.buffers, one.threads, one.group, one.errors)
            for target, source in work.copies:
                target.copy_(source)
            with self._lock:
                self.real[operator] += 1
            if work.cast is not None:
                return tuple(one.to(work.cast) for one in work.results), None, False
            recipe = recipe_of(call, work, kernels, before, self.stopped, self._hot)
        return work.results, recipe, recipe is not None

    def _kernels(self, work: Work) -> list[CompiledKernel] | None:
        """The kernels of its launches; None if the release lacks one, one takes other arguments or cannot run here."""
        found = []
        for one in work.launches:
            if one.kernel in self._lost or one.kernel not in self._library:
                return None
            try:
                kernel = self._library[one.kernel]
            except KernelsError:
                self._lost.add(one.kernel)
                return None
            if not kernel.takes(len(one.buffers) + (one.errors is not None)):  # another release's arguments
                self._lost.add(one.kernel)
                return None
            found.append(kernel)
        return found

    def stopped(self, entry: int, ranges: list[tuple[int, int, int]]) -> None:
        """Raises what stopped the last launch of this thread, of the kernel with that entry.

        `ranges` are the position, the address and the bytes of each argument.
        """
        self._library.at(entry).raise_stopped(ranges)


def _packet(operator: str) -> str:
    """The name without namespace and overload; that of an operator in place is the operator's own."""
    name = operator.partition("::")[2].partition(".")[0]
    return name if name in DESCRIBED else name.removesuffix("_")


def _overloads() -> list[tuple[str, Any]]:
    found = []
    for name in DESCRIBED:
        for packet in (getattr(torch.ops.aten, one, None) for one in (name, f"{name}_")):
            for overload in packet.overloads() if packet is not None else ():
                schema = getattr(packet, overload)._schema
                if any("Tensor" in str(argument.type) for argument in schema.arguments):
                    found.append(
                        (
                            schema.name.partition("::")[2] + (f".{schema.overload_name}" * bool(schema.overload_name)),
                            schema,
                        )
                    )
    return found
