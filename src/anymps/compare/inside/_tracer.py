"""The mode that traces calls: each operator that computes, with sketches of its inputs before and its results after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from anymps._threads import calling_thread_alone
from anymps.compare._trace import Bound, TraceWriter
from anymps.compare.inside._draws import tensors_of, written_by
from anymps.compare.inside._sites import ForwardLines, Lines
from anymps.compare.inside._sketch import digest_of, on_cpu, readable, sketched
from anymps.device import known_hazards, native
from anymps.numerics import bound_of
from anymps.rules.faults import ELSEWHERE

MOST_CALLS: Final = 40_000
"""Calls that one trace holds, about 100 MB of memory where two are compared."""

_NOT_COMPUTED: Final = (
    *("alias", "contiguous", "detach", "empty", "empty_like", "empty_permuted", "empty_strided", "is_pinned"),
    *("is_same_size", "lift", "lift_fresh", "new_empty", "new_empty_strided", "pin_memory", "record_stream"),
    *("resize", "resize_as", "set", "size", "stride", "_unsafe_view", "sym_size", "sym_stride", "sym_numel"),
    *("sym_storage_offset", "storage_offset", "dim", "numel", "equal", "_has_compatible_shallow_copy_type"),
)
"""Operators that give no number, or one that was not written yet."""

_OVERWRITING: Final = (
    *("bernoulli_", "cauchy_", "copy_", "exponential_", "fill_", "geometric_", "log_normal_", "normal_"),
    *("random_", "uniform_", "zero_"),
)
"""Those whose first tensor is written over and not read."""


def is_full_step(step: int, full: int) -> bool:
    """Whether each call of a step is traced: of the first `full`, then of the 2 `full`th, the 4 `full`th and so on.

    `step` counts from 0.
    """
    if step < full:
        return True
    distance, rest = divmod(step + 1, max(full, 1))
    return rest == 0 and distance & (distance - 1) == 0


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Traces the calls of the process into `writer` while it is entered.

    `device` is what the run is about; `in_host_memory` says that the virtual device's memory can be read here;
    `by_kernels` counts the calls that PyTorch's own kernels have computed.
    """

    def __init__(
        self, writer: TraceWriter, device: str, *, in_host_memory: bool, by_kernels: Callable[[], int]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._writer, self._device = writer, device
        self._in_host_memory, self._by_kernels = in_host_memory, by_kernels
        self.lines = Lines()
        self.calls = 0
        self.left_out = 0
        self.step = 0
        self.used = False
        self.is_on = True
        self.autocast = ""
        self.backward_site = 0
        self._forward = ForwardLines()
        self._kinds: dict[Any, tuple[bool, bool, int]] = {}
        self._bounds: dict[Any, int] = {}
        self._faults = FaultsMet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        computes, is_random, operator = self._kind(func)
        tensors = tensors_of((args, kwargs))
        if not (computes and self.is_on):
            self._pass_by(tensors)
            return func(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._read(func, args)
        site, in_backward = self._place(tensors)
        written = list(written_by(func, args, kwargs))
        # What is overwritten unread is no input: its old values may differ between two runs, and nothing follows.
        overwrites = func._schema.name.rpartition("::")[2] in _OVERWRITING or _has_out(func)
        given = _readable_but(written if overwrites else (), tensors)
        self._note_use(tensors)
        inputs = [self._value(tensor) for tensor in given]
        faults = self._faults.of(func, args, kwargs)
        before = self._by_kernels()
        out = func(*args, **kwargs)
        by_kernel = self._by_kernels() > before
        results = _readable_but((), tensors_of(out))
        results += _readable_but(results, written)
        self._note_use(results)
        if not results or self._only_moves(func, given, results):
            return out
        if self.calls >= MOST_CALLS:
            self.left_out += 1
            return out
        self._writer.row(
            "c",
            [
                self.calls,
                operator,
                site,
                self.step,
                in_backward,
                inputs,
                [self._value(tensor) for tensor in results],
                self._bound(func, given, results),
                *(_draws(func, args, kwargs) if is_random else (False, False)),
                self.autocast,
                by_kernel,
                numbers_of(args, kwargs),
                faults,
            ],
        )
        self.calls += 1
        return out

    def _pass_by(self, tensors: Sequence[torch.Tensor]) -> None:
        """Notes of a call that is not traced only what later ones need: the line of its node in the graph."""
        self._note_use(tensors)
        if self.is_on and torch._C._current_autograd_node() is None and _need_gradients(tensors):
            self._forward.add(torch._C._autograd._get_sequence_nr() - 1, self._line())

    def _kind(self, func: Any) -> tuple[bool, bool, int]:
        """Whether it computes, whether it can draw random numbers, and its number."""
        kind = self._kinds.get(func)
        if kind is None:
            namespace, _, name = func._schema.name.rpartition("::")
            writes = any(one.alias_info is not None and one.alias_info.is_write for one in func._schema.arguments)
            is_view = not writes and any(one.alias_info is not None for one in func._schema.returns)
            computes = not is_view and namespace != "profiler" and name.rstrip("_") not in _NOT_COMPUTED
            is_random = torch.Tag.nondeterministic_seeded in func.tags
            number = self._writer.number("operator", str(func))
            if computes:
                self._tell_lists(name)
            kind = self._kinds[func] = computes, is_random, number
        return kind

    def _tell_lists(self, name: str) -> None:
        """Write which devices' autocast lists the operator is on, or what it is a part of: `_softmax` of `softmax`."""
        plain = name.rstrip("_").removesuffix("_backward_data").removesuffix("_backward").removesuffix("_forward")
        for candidate in dict.fromkeys((plain, plain.lstrip("_"), plain.removeprefix("native_"))):
            packet = getattr(torch.ops.aten, candidate, None)
            if packet is None:
                continue
            wholes = [_qualified(candidate, overload) for overload in packet.overloads()]
            found = [
                device
                for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA"), ("mps", "AutocastMPS"))
                if any(_is_registered(whole, key) for whole in wholes)
            ]
            if found:
                self._writer.row("lists", [name.rstrip("_") or name, candidate, found])
                return

    def _place(self, tensors: Iterable[torch.Tensor]) -> tuple[int, bool]:
        """The line of a call of `tensors`, that of its forward for one of backward; and whether it is backward's."""
        node = torch._C._current_autograd_node()
        if node is not None:
            return self._forward.line_of(node._sequence_nr(), self.backward_site), True
        number = self._line()
        if _need_gradients(tensors):
            self._forward.add(torch._C._autograd._get_sequence_nr() - 1, number)
        return number, False

    def _line(self) -> int:
        """The number of the line that runs, 0 in a thread without one."""
        site, _ = self.lines.now()
        return self._writer.number("site", site) if site is not None else 0

    def _read(self, func: Any, args: Any) -> Any:
        value = func(*args)
        site, direct = self.lines.now()
        if direct and site is not None and isinstance(value, (int, float)):
            self._writer.row("read", [self.calls, self._writer.number("site", site), self.step, float(value)])
        return value

    def _value(self, tensor: torch.Tensor) -> tuple[int, int]:
        """The number of its sketch, and its memory."""
        memory = tensor.data_ptr() if tensor.numel() else 0
        dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
        with calling_thread_alone():  # both runs compute at once, and their threads would wait for each other
            here = on_cpu(tensor, self._in_host_memory)
            digest = digest_of(here)
            known = self._writer.known(dtype, shape, digest)
            number = self._writer.number("k", sketched(here, digest)) if known is None else known
        return number, memory

    def _bound(self, func: Any, given: list[torch.Tensor], results: list[torch.Tensor]) -> int:
        shapes = tuple(tuple(tensor.shape) for tensor in given)
        floats = [one.dtype for one in (*given, *results) if one.is_floating_point() or one.is_complex()]
        dtype = min(floats, key=lambda one: (one.itemsize, str(one))) if floats else results[0].dtype
        key = (func, dtype, shapes, tuple(results[0].shape))
        number = self._bounds.get(key)
        if number is None:
            graphs = self._device == "mps" and not self._in_host_memory  # MPSGraph may compute it
            found = bound_of(func._schema.name, dtype, shapes, tuple(results[0].shape), mpsgraph=graphs)
            most = bound_of("", dtype)
            bound = Bound(
                found.kind.value,
                found.relative + found.rounding,
                found.absolute,
                found.terms,
                found.of_input,
                most.relative,
                most.absolute,
            )
            number = self._bounds[key] = self._writer.number("bound", bound)
        return number

    def _note_use(self, tensors: Iterable[torch.Tensor]) -> None:
        """Write once that something is computed on the device."""
        if not self.used and any(tensor.device.type == self._device for tensor in tensors):
            self.used = True
            self._writer.row("facts", {"used": "1"})

    def _only_moves(self, func: Any, given: list[torch.Tensor], results: list[torch.Tensor]) -> bool:
        """A copy in the same dtype, which one side may not need: to another device, or another layout."""
        name = func._schema.name.rpartition("::")[2]
        return name in ("_to_copy", "copy_", "clone") and all(
            tensor.dtype == result.dtype for tensor in given[-1:] for result in results
        )


def _readable_but(others: Iterable[torch.Tensor], tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Those tensors whose numbers can be read, without those that are among `others`."""
    left_out = {id(tensor) for tensor in others}
    return [tensor for tensor in tensors if readable(tensor) and id(tensor) not in left_out]


def _need_gradients(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether a call of them can make a node of autograd; any other call would take the line of the node before."""
    return any(tensor.requires_grad for tensor in tensors)


def _has_out(func: Any) -> bool:
    return any(argument.is_out for argument in func._schema.arguments)


def _draws(func: Any, args: Any, kwargs: Any) -> tuple[bool, bool]:
    """Of an operator that can draw random numbers: whether this call draws any, and from a generator it was given.

    Attention, recurrent layers and dropout draw nothing with a dropout of 0 or outside of training.
    """
    named = {one.name: args[place] for place, one in enumerate(func._schema.arguments[: len(args)])} | kwargs
    values = {one.name: named.get(one.name, one.default_value) for one in func._schema.arguments}
    if (
        any(values.get(name) == 0 for name in ("dropout_p", "dropout"))
        or values.get("train", values.get("training")) is False
    ):
        return False, False
    return True, any(isinstance(item, torch.Generator) for item in pytree.tree_leaves((args, kwargs)))


def _qualified(name: str, overload: str) -> str:
    return f"aten::{name}" if overload == "default" else f"aten::{name}.{overload}"


def _is_registered(operator: str, key: str) -> bool:
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))
    except RuntimeError:  # an overload that torch knows by its schema alone
        return False


def numbers_of(args: Any, kwargs: Any) -> list[float]:
    """The numbers of Python among the arguments, in order."""
    return [item for item in pytree.tree_leaves((args, kwargs)) if isinstance(item, (int, float))]


class FaultsMet:
    """Tells which of the faults in force on mps a call meets; on another device none is in force."""

    def __init__(self) -> None:
        self._operators = {name for fault in known_hazards() for name in fault.operators}

    def of(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
        """The ids of those that the call meets, before it is made."""
        schema = func._schema
        if schema.name.rpartition("::")[2] not in self._operators:
            return []
        tensors = pytree.tree_leaves((args, kwargs))
        if not any(isinstance(item, torch.Tensor) and item.device.type == "mps" for item in tensors):
            return []
        named = {said.name: value for said, value in zip(schema.arguments, args, strict=False)} | dict(kwargs)
        values = (named.get(said.name, said.default_value) for said in schema.arguments)
        given = tuple(list(value) if isinstance(value, tuple) else value for value in values)
        try:
            met = native().hazards_of(func.name(), given)
        except RuntimeError:  # mps has no kernel of this overload: it calls another one
            return []
        return [identity for identity in met if not identity.startswith(ELSEWHERE)]
