"""What a dispatch mode has to know of an operator: how its calls are recorded, decided once for each overload."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from functools import lru_cache
from typing import Any

import torch
from torch._ops import OpOverload

from anymps.capture.dispatch._hazards import KnownFaults
from anymps.device import composite_rows
from anymps.record import Fate, Wait
from anymps.rules import CoreRow, When, core_table, device_checks

_KEY = torch._C.DispatchKey
_COMPOSITE = (
    _KEY.CompositeExplicitAutograd,
    _KEY.CompositeExplicitAutogradNonFunctional,
    _KEY.CompositeImplicitAutograd,
)
_STRIDED = torch.strided
_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key

_ALLOCATIONS = frozenset({"empty", "empty_strided", "resize_", "set_", "record_stream"})
_COPIES = frozenset({"copy_", "_copy_from", "_copy_from_and_resize"})
# Composite in torch, with a branch for mps inside; one operator in every recording.
_WHOLE = frozenset({"copy_", "convolution", "_convolution", "convolution_backward"})

NUMBERS = {
    bool: torch.tensor(False),
    int: torch.tensor(0),
    float: torch.tensor(0.0, dtype=torch.float64),
    complex: torch.tensor(0j, dtype=torch.complex128),
}
"""Torch puts a number among tensors into a tensor of these kinds, which a dispatch mode is given as the number."""

Tensors = list[tuple[int, torch.Tensor]]
"""The tensors of a call, each with the place of its argument in the schema."""


class Kind(Enum):
    """How the calls of an operator are recorded."""

    VIEW = auto()
    """Not at all: no kernel runs."""
    ALLOCATION = auto()
    """As the birth of a buffer."""
    COPY = auto()
    READ = auto()
    LIFT = auto()
    """As a copy to mps, if its tensor lies there: what `torch.tensor` and its like end with. They fill a CPU tensor and
    copy it out of sight of every mode (torch 2.13, torch/csrc/utils/tensor_new.cpp)."""
    KERNEL = auto()


class Plan:
    """One overload."""

    def __init__(self, func: OpOverload, row: CoreRow | None, faults: KnownFaults) -> None:
        """`row` is the overload's in the rules, None for one without a kernel of its own on mps."""
        schema = func._schema
        self.name = _name(func)
        self.base = self.name.partition("::")[2].partition(".")[0]
        self.has_device = any(argument.name == "device" for argument in schema.arguments)
        self.places = {argument.name: place for place, argument in enumerate(schema.arguments)}
        self.writes = frozenset(
            place
            for place, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        aten = self.name.startswith("aten::")
        self.kind = _kind(func, self.base) if aten else Kind.KERNEL
        self.resizes = self.base in ("resize_", "set_") or any(argument.is_out for argument in schema.arguments)
        self.numbers = frozenset(
            place for place, argument in enumerate(schema.arguments) if str(argument.type) == "Tensor"
        )
        self._fresh = [answer.alias_info is None for answer in schema.returns]
        self._dense = _has_kernel(self.name, "MPS")
        self._sparse = _has_kernel(self.name, "SparseMPS")
        self.is_composite = _has_kernel(self.name, _KEY.CompositeImplicitAutograd.name)
        self._composite = next((key for key in _COMPOSITE if _has_kernel(self.name, key.name)), None)
        if aten and self.base in _WHOLE:
            self._composite = None
            self._dense = True
        elif self.kind is Kind.LIFT:
            self._composite = None
        elif aten and self._dense and row is None and self._composite is _KEY.CompositeImplicitAutograd:
            # lstm, attention: made of others on a Mac; the virtual device has a kernel that does the same.
            self._composite, self._dense = _KEY.MPS, False
        # Autograd passes through such an operator and records what it is made of.
        self.tracked = not _has_kernel(self.name, "Autograd") and not _has_kernel(self.name, "AutogradMPS")
        self.checks_indices = self.base in _checked_operators()
        self.number: int | None = None  # on the tape, once it has one
        self.hazards = faults.of(func, self.name, row)
        self._when = When(row[5]) if row is not None else When.ALWAYS
        self._wait = Wait(row[4]) if row is not None else Wait.NONE
        self._conditional = self._wait is not Wait.NONE and self._when is not When.ALWAYS
        self._always = fate_of(row) is Fate.ALWAYS_FALLBACK
        # Python may pass a number in a tensor's place to the operators of a list in torch, and to no others.
        self._takes_numbers = not self.numbers or torch._C._should_allow_numbers_as_tensors(self.base)
        self._with_numbers: dict[tuple[int, ...], OpOverload] = {}

    def callable_with(self, func: OpOverload, args: Any) -> OpOverload:
        """`func`, or its overload that takes numbers where `args` has numbers in tensors' places.

        `x % 1` is `remainder.Scalar`, a kernel of torch's own that makes a tensor of the number and calls
        `remainder.Tensor`. A mode is given the number back, with which only the former can be called again.
        """
        if self._takes_numbers:
            return func
        places = tuple(place for place in self.numbers if place < len(args) and type(args[place]) in NUMBERS)
        if places and places not in self._with_numbers:
            self._with_numbers[places] = _overload_with_numbers(func, places) or func
        return self._with_numbers.get(places, func)

    def composite_key(self, tensors: Tensors) -> Any:
        """Where torch's own kernel made of other operators is, if that serves this call; None: the device has one."""
        if self._composite is None or self._listed(tensors):
            return None
        return self._composite

    def fate(self, tensors: Tensors) -> Fate:
        """What becomes of a call that is not made of others."""
        if self._always:
            return Fate.ALWAYS_FALLBACK
        return Fate.NATIVE if self._listed(tensors) else Fate.FALLBACK

    def wait_of(self, tensors: Tensors, args: Any, kwargs: Any) -> Wait:
        """The wait inside the operator for these arguments. Conditions: `anymps.rules.When`."""
        if self._when is When.INDEX_IS_MASK and any(place == 1 and tensor.is_cpu for place, tensor in tensors):
            return Wait.COPY_TO_MPS  # the index
        if not self._conditional:
            return self._wait
        return self._wait if self._waits(tensors, args, kwargs) else Wait.NONE

    def _waits(self, tensors: Tensors, args: Any, kwargs: Any) -> bool:
        """The conditions of `anymps.rules`, by name."""

        def given(name: str, default: Any = None) -> Any:
            place = self.places.get(name, len(args))
            return args[place] if place < len(args) else kwargs.get(name, default)

        sparse = [tensor.layout is not torch.strided for _, tensor in tensors]
        if self._when is When.INDEX_IS_MASK:
            return any(place and tensor.dtype in (torch.bool, torch.uint8) for place, tensor in tensors)
        if self._when is When.SCALAR_ON_MPS:
            return any(place and tensor.dim() == 0 and tensor.is_mps for place, tensor in tensors)
        if self._when is When.ZERO_DIM:
            return any(not place and tensor.dim() == 0 for place, tensor in tensors)
        if self._when is When.FIRST_IS_SPARSE:
            return sparse[0]
        if self._when is When.BOTH_ARE_SPARSE:
            return len(sparse) > 1 and all(sparse[:2])
        if self._when is When.NO_OUTPUT_SIZE:
            return given("output_size") is None
        if self._when is When.SORTER_GIVEN:
            return given("sorter") is not None
        if tensors[0][1].numel() == 0:
            return False
        ends = given("min", 0) == given("max", 0)
        return bool(ends) if self._when is When.EQUAL_ENDS else given("range") is None

    def fresh(self, result: Any) -> list[torch.Tensor]:
        """The results that the call has made and that lie on mps."""
        if isinstance(result, torch.Tensor):
            return [result] if self._fresh[0] and result.is_mps else []
        if not isinstance(result, (tuple, list)):
            return []
        made: Iterable[Any] = result
        if len(self._fresh) == len(result):
            made = (part for part, fresh in zip(result, self._fresh, strict=True) if fresh)
        found: list[torch.Tensor] = []
        for part in made:
            if isinstance(part, torch.Tensor):
                found += [part] if part.is_mps else []
            elif isinstance(part, (tuple, list)):
                found += [item for item in part if isinstance(item, torch.Tensor) and item.is_mps]
        return found

    def _listed(self, tensors: Tensors) -> bool:
        if self._sparse != self._dense:
            for _, tensor in tensors:
                if tensor.layout is not _STRIDED:
                    return self._sparse
        return self._dense


def _overload_with_numbers(func: OpOverload, places: tuple[int, ...]) -> OpOverload | None:
    """The overload that has a number at these places and is `func` otherwise."""
    packet = func.overloadpacket
    wanted = [
        (argument.name, "number" if place in places else str(argument.type))
        for place, argument in enumerate(func._schema.arguments)
    ]
    for name in packet.overloads():
        other: OpOverload = getattr(packet, name)
        types = [(argument.name, str(argument.type)) for argument in other._schema.arguments]
        if types == wanted:
            return other
    return None


class Plans:
    """The plans of all overloads met so far."""

    def __init__(self, faults: KnownFaults) -> None:
        self._rules = {row[0]: row for row in (*core_table(), *composite_rows())}
        self._faults = faults
        self._plans: dict[int, Plan] = {}  # by identity: torch keeps overloads for ever, and their hash is slow

    def of(self, func: OpOverload) -> Plan:
        """The plan of an overload."""
        plan = self._plans.get(id(func))
        if plan is None:
            plan = self._plans[id(func)] = Plan(func, self._rules.get(_name(func)), self._faults)
        return plan

    def fate_of(self, operator: str) -> Fate:
        """The fate of an operator that runs on the CPU."""
        return fate_of(self._rules.get(operator))


def fate_of(row: CoreRow | None) -> Fate:
    """The fate of an operator that runs on the CPU, by its row in the rules."""
    return Fate.ALWAYS_FALLBACK if row is not None and row[1] == int(Fate.ALWAYS_FALLBACK) else Fate.FALLBACK


def tensors_of(plan: Plan, args: Any, kwargs: Any) -> Tensors:
    """All tensors among the arguments, in their order; for a number in a tensor's place its stand-in of `NUMBERS`."""
    found: Tensors = []
    for place, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            found.append((place, value))
        elif isinstance(value, (list, tuple)):
            found += [(place, item) for item in value if isinstance(item, torch.Tensor)]
        elif place in plan.numbers and type(value) in NUMBERS:
            found.append((place, NUMBERS[type(value)]))
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor):
            found.append((plan.places[name], value))
        elif isinstance(value, (list, tuple)):
            found += [(plan.places[name], item) for item in value if isinstance(item, torch.Tensor)]
    return found


@lru_cache(maxsize=1)
def _checked_operators() -> frozenset[str]:
    """Base names of the operators whose kernels look at their indices and report a bad one."""
    return frozenset(name for name, (_, text, _) in device_checks(str(torch.__version__)).items() if text)


def _name(func: OpOverload) -> str:
    return str(func.name())  # type: ignore[no-untyped-call]


def _kind(func: OpOverload, base: str) -> Kind:
    if base in _COPIES:
        return Kind.COPY
    if base == "_local_scalar_dense":
        return Kind.READ
    if base in _ALLOCATIONS:
        return Kind.ALLOCATION
    if base == "lift_fresh":
        return Kind.LIFT
    # `to`, `reshape` and others of many faces are made of a view or of a copy; they come by in inference mode only.
    is_view = func.is_view and not _has_kernel(_name(func), "CompositeImplicitAutograd")
    return Kind.VIEW if is_view or base in ("_unsafe_view", "_reshape_alias") else Kind.KERNEL
