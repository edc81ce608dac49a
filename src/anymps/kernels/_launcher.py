"""Computes calls of operators with PyTorch's own kernels, if the launch is known, and counts them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from anymps._errors import KernelsError
from anymps.kernels._llvm import llvm
from anymps.kernels._memo import Recipe, Signature, recipe_of, signature_of, tensors_of
from anymps.kernels._support import support
from anymps.kernels.launches import BEGINNINGS, BY_VALUES, DESCRIBED, TAKEN_ANEW, KernelCall, Work

if TYPE_CHECKING:
    from anymps.kernels._library import CompiledKernel, KernelLibrary

_MOST = 8192  # calls that are kept; a program whose numbers change with each step would fill the memory else
_UNKNOWN: Final = Recipe((), 0, (), ())


def check_tools() -> None:
    """Raises KernelsError without llvmlite, and BuildError without a compiler for what kernels call."""
    llvm()
    support()


class Launcher:
    """What the device offers its calls to. Names of operators are whole: `aten::add.Tensor`."""

    def __init__(self, library: KernelLibrary, release: tuple[int, int]) -> None:
        self._library = library
        self._release = release
        self._schemas = {f"aten::{name}": schema for name, schema in _overloads()}
        self._anew = dict(_taken_anew(self._schemas))
        self._lost: set[str] = set()  # kernels that this machine cannot run
        self._kept: dict[Signature | None, Recipe | None] = {}  # None where no kernel computes it
        self._lock = threading.Lock()
        self.real: Counter[str] = Counter()
        """How many calls of each operator a kernel has computed."""

    def operators(self) -> list[str]:
        """The operators that may have a described launch, in this release."""
        names = dir(self._library)
        without = {packet for packet, start in BEGINNINGS.items() if not any(name.startswith(start) for name in names)}
        return sorted(name for name in self._schemas if _packet(name) not in without)

    def __call__(
        self, operator: str, arguments: list[Any], foreign: list[int], numbers: Sequence[int] = ()
    ) -> tuple[torch.Tensor, ...] | None:
        """The results of a call on tensors of this machine's memory; None for one that no kernel is known for.

        `foreign` are the positions of tensors that are not on mps, and `numbers` of those that are Python's numbers.
        """
        with torch._C.DisableTorchFunction():  # a mode of the program's is not meant for what a call is made of
            tensors, told = tensors_of(arguments), (operator, tuple(foreign), tuple(numbers))
            signature = signature_of(arguments, tensors, self._anew.get(operator), told)
            recipe = self._kept.get(signature, _UNKNOWN)
            if recipe is _UNKNOWN:
                results = self._describe(operator, arguments, foreign, signature)
            else:
                results = None if recipe is None else recipe.run(arguments, tensors)
        if results is not None:
            with self._lock:
                self.real[operator] += 1
        return results

    def _describe(
        self, operator: str, arguments: list[Any], foreign: list[int], signature: Signature | None
    ) -> tuple[torch.Tensor, ...] | None:
        """Computes a call, and keeps what there is to keep of it."""
        schema = self._schemas[operator]
        names = [argument.name for argument in schema.arguments]
        call = KernelCall(
            dict(zip(names, arguments, strict=True)),
            tuple(value for value, one in zip(arguments, schema.arguments, strict=True) if one.is_write),
            frozenset(names[position] for position in foreign),
            self._library,
            self._release,
        )
        before = [one.shape for one in tensors_of(arguments)]
        packet = _packet(operator)
        if packet in BY_VALUES:
            signature = None
        work = DESCRIBED[packet](call)
        kernels = None if work is None else self._kernels(work)
        if work is None or kernels is None:
            self._keep(signature, None)
            return None
        for one, kernel in zip(work.launches, kernels, strict=True):
            kernel.run(one.buffers, one.threads, one.group, one.errors)
        for target, source in work.copies:
            target.copy_(source)
        recipe = None if signature is None else recipe_of(call, work, kernels, before)
        if recipe is not None:
            self._keep(signature, recipe)
        return work.results

    def _keep(self, signature: Signature | None, recipe: Recipe | None) -> None:
        if signature is None:
            return
        if len(self._kept) >= _MOST:
            self._kept.clear()
        self._kept[signature] = recipe

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


def _packet(operator: str) -> str:
    """The name without namespace and overload; that of an operator in place is the operator's own."""
    name = operator.partition("::")[2].partition(".")[0]
    return name if name in DESCRIBED else name.removesuffix("_")


def _taken_anew(schemas: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Operators, and the position of the argument whose value launches take anew if it is a float."""
    for operator, schema in schemas.items():
        names = [argument.name for argument in schema.arguments]
        if TAKEN_ANEW.get(_packet(operator)) in names:
            yield operator, names.index(TAKEN_ANEW[_packet(operator)])


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
