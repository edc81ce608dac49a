"""What `torch.mps.compile_shader` returns: a library of kernels, and a kernel that is called like a function."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from anymps.metal._arguments import PADDING, Arguments, Constant, bind_arguments, group_of, tensors_of
from anymps.metal._device import Device
from anymps.metal._faults import fault_text, stray_text
from anymps.metal._launch import Copied, ErrorBuffer, Launch, Launcher, Repeated, Sizes3, address_of, lies_along
from anymps.metal._runtime import GROUPS, KernelEntry, Report, load_kernels, raise_interrupt
from anymps.metal._signatures import TENSOR, kinds_of, packing_of, plain_casts, plain_sizes
from anymps.metal._tape import launch_on_tape, straight, through_line
from anymps.metal.checking import CheckedLaunch, Samples, checker, checks_shaders, sample_seed
from anymps.metal.compilation import compile_shader

MAX_SHARED_BYTES = 32768  # threadgroup memory of a group, on every Apple GPU
_EXECUTION_WIDTH = 32
_address, _workers = TENSOR.data_ptr, torch.get_num_threads  # found at once
_MOST_REPEATED = 256
_MOST_ALONG_X = 2**31 - 1  # the loop over them counts with an int, which the compiler knows not to wrap


@dataclass(frozen=True)
class Checks:
    """How kernels are checked: their source and its checked form, the samples, and a kernel's plain form, by name."""

    source: str
    library: Path
    samples: Samples
    plain: Callable[[str], MetalKernel]


class ShaderLibrary:
    """The kernels of one Metal source, as attributes. They run on `device`, under the checker if one is asked for."""

    def __init__(self, source: str, device: Device, checked: bool | None = None) -> None:
        checked = checks_shaders() if checked is None else checked
        if checked:
            checker()
        device.begin_margins()
        path = compile_shader(source, checked)
        self._handle, self._entries = load_kernels(path)
        self._checks: Checks | None = None
        if checked:
            self._checks = Checks(source, path, Samples(sample_seed()), lambda name: getattr(self._plain, name))
        self._source = source
        self._device = device

    def __getattr__(self, name: str) -> MetalKernel:
        entry = self.__dict__.get("_entries", {}).get(name)
        if entry is None:
            raise RuntimeError(f"Failed to create function state object for: {name}")
        if isinstance(entry, str):
            raise RuntimeError(entry)
        kernel = MetalKernel(name, entry, self._handle, self._device, self._checks, lambda: self._fibers[1])
        self.__dict__[name] = kernel  # found at once from now on
        return kernel

    def kernel(self, name: str) -> MetalKernel:
        """The kernel of that name. Raises RuntimeError if there is none, or if it cannot run here."""
        return getattr(self, name)  # type: ignore[no-any-return]

    def place_kernel(self, name: str, place: tuple[str, int, str]) -> None:
        """Let launches of a kernel run at a line of the program: its file, number and function."""
        getattr(self, name).place = through_line(*place)

    @functools.cached_property
    def _fibers(self) -> tuple[ctypes.CDLL, dict[str, KernelEntry | str]]:
        """The same kernels with each thread as a fiber, compiled when a launch needs them."""
        return load_kernels(compile_shader(self._source, loops=False))

    @functools.cached_property
    def _plain(self) -> ShaderLibrary:
        """The plain form of a checked source, compiled when a launch, or groups of one, are not checked."""
        return ShaderLibrary(self._source, self._device, checked=False)

    def __dir__(self) -> list[str]:
        return list(self._entries)


class MetalKernel:
    """One kernel. Calling it runs it over a grid of threads.

    Raises what torch raises on a Mac for arguments that it does not take, ValueError for a group above the limit, and
    RuntimeError if the kernel touches memory that is not there or divides an integer by zero.
    """

    _is_compiled = False  # without a source whose line could be told

    def __init__(
        self,
        name: str,
        entry: KernelEntry,
        library: ctypes.CDLL,
        device: Device,
        checks: Checks | None = None,
        with_fibers: Callable[[], Mapping[str, KernelEntry | str]] | None = None,
    ) -> None:
        self._name = name
        self._device = device
        self._entry = entry
        self._launch = Launcher(entry)
        self._checks = checks
        self._with_fibers = with_fibers
        self._axis = int(entry.axis) if with_fibers is not None and entry.form == GROUPS else None
        self.place = straight
        self._library = library  # the code lives as long as this
        self._written = entry.written
        self._begin, self._end = device.begin_launch, device.end_launch
        self._by_operator = device.shaders_by_operator
        self._repeated: dict[object, Repeated] = {}
        self._shared = int(entry.shared_bytes())
        if self._shared > MAX_SHARED_BYTES:
            raise RuntimeError(
                "Failed to created pipeline state object, error: Threadgroup memory size "
                f"({self._shared}) exceeds the maximum threadgroup memory allowed ({MAX_SHARED_BYTES})"
            )

    @property
    def max_threads_per_threadgroup(self) -> int:
        """How many threads a group may have."""
        return int(self._entry.max_threads)

    @property
    def thread_execution_width(self) -> int:
        """The threads of a SIMD group."""
        return _EXECUTION_WIDTH

    @property
    def static_thread_group_memory_length(self) -> int:
        """Bytes of threadgroup memory that the kernel declares."""
        return self._shared

    def __call__(
        self, *args: Any, threads: Any = None, group_size: Any = None, arg_casts: Any = None, error_buf_idx: Any = None
    ) -> None:
        if self._repeated and error_buf_idx is None and self._repeat(args, threads, group_size, arg_casts):
            return
        bound = bind_arguments(args, threads, group_size, arg_casts)
        self._start(bound, error_buf_idx)
        if self._checks is None and error_buf_idx is None and not self._device.shaders_by_operator():
            self._remember(bound, args, arg_casts)

    def launch_given(self, given: Sequence[torch.Tensor | int | None], threads: Any, group_size: Any) -> None:
        """Runs it for a compiled extension. Bytes are a CPU tensor of one dimension; None is no argument."""
        self(*map(_as_argument, given), threads=threads, group_size=group_size)

    def _remember(self, bound: Arguments, args: tuple[Any, ...], arg_casts: Any) -> None:
        """Keeps what a later launch on arguments of the same types, over the same grid, has in common with this one."""
        if 0 in bound.threads or len(args) < self._entry.buffers:
            return
        (kinds, values), casts = kinds_of(args), plain_casts(arg_casts)
        packing = packing_of(kinds, casts, self._written)
        if packing is None or not all(values[place].is_mps for place in packing.tensors):
            return
        group = group_of(bound.threads, bound.group_size, self.max_threads_per_threadgroup)
        x, y, z, *_ = (*bound.threads, 1, 1)
        repeated = self._launch.repeated(packing, (x, y, z), group)
        if len(self._repeated) >= _MOST_REPEATED:
            self._repeated.clear()
        group_size = None if bound.group_size is None else plain_sizes(bound.group_size)
        told_by = len(args) if kinds.count(TENSOR) == len(kinds) else kinds  # as `_repeat` asks
        self._repeated[told_by, plain_sizes(bound.threads), group_size, casts] = repeated

    def _repeat(self, args: tuple[Any, ...], threads: Any, group_size: Any, arg_casts: Any) -> bool:
        """Runs a launch that is like an earlier one; False if it may be another. The way of most launches, so short."""
        kinds: object = len(args)
        values = None
        for one in args:
            if type(one) is not TENSOR:
                kinds, values = kinds_of(args)
                break
            if not one.is_mps:
                return False
        if threads is None:
            if not args or type(args[0]) is not TENSOR:
                return False
            threads = args[0].numel()
        elif type(threads) is not int:
            threads = plain_sizes(threads)
        if group_size is not None and type(group_size) is not int:
            group_size = plain_sizes(group_size)
        casts = None if arg_casts is None else plain_casts(arg_casts)
        try:
            repeated = self._repeated.get((kinds, threads, group_size, casts))
        except TypeError:  # casts that are no texts
            return False
        if repeated is None or self._by_operator():
            return False
        return self._run_again(repeated, values, args, arg_casts)

    def _run_again(self, repeated: Repeated, values: list[Any] | None, args: tuple[Any, ...], arg_casts: Any) -> bool:
        """`values` are the arguments with lists spread out, in a list of their own; None: they are tensors alone."""
        call, entry, pack, plan, alone, tensors, written = repeated
        given: Sequence[Any] = args
        if values is not None:
            given = values
            for place in tensors:
                if not values[place].is_mps:
                    return False
        guarded = [given[place] for place in written] if len(written) != 1 else [given[written[0]]]
        begun = self._begin(guarded)
        copied = () if begun is None else begun[0]
        try:
            if values is not None:
                packed = pack(*_as_words(values, tensors, copied))
            elif copied:
                packed = pack(*[address_of(one, copied) for one in args])
            else:
                packed = pack(*map(_address, args))
            signal = call(entry, packed, plan, alone or _workers())
        except (struct.error, OverflowError):  # a number too large, which `bind_arguments` judges
            return False
        finally:
            stray = self._end(guarded, begun)  # after a fault, too: the next launch is not to blame
        if signal or stray is not None:
            bound = bind_arguments(args, 1, None, arg_casts)
            if signal:
                self._raise_fault(self._launch.last_report(), bound, "", copied=copied)
            if stray is not None:
                self._refuse_stray(bound, guarded[stray[0]], *stray[1:])
        return True

    def _start(self, bound: Arguments, error_buf_idx: int | None) -> None:
        """Launches it as an entry of its own."""
        group = group_of(bound.threads, bound.group_size, self.max_threads_per_threadgroup)
        x, y, z, *_ = (*bound.threads, 1, 1)
        grid = (x, y, z)
        if 0 in grid:
            return
        if 0 in group:
            raise ValueError("anymps: a group of threads cannot be empty")
        if x > _MOST_ALONG_X:
            raise RuntimeError(f"anymps: {x:,} threads along x; here a kernel runs at most {_MOST_ALONG_X:,}")
        check = None
        if self._checks is not None:
            sample = self._checks.samples.next(self._name, bound, grid, group)
            if sample is None:
                plain = self._checks.plain(self._name)
                plain.place = self.place
                plain._start(bound, error_buf_idx)
                return
            check = CheckedLaunch(self._checks.source, self._checks.library, sample)
        tensors = bound.tensors()
        _refuse_traced(tensors)
        guarded = [] if check is not None else self._may_be_written(bound)  # checked, it runs on copies
        begun = self._begin(guarded)

        def run(buffers: Sequence[torch.Tensor]) -> None:
            copied = () if begun is None else begun[0]
            self._run(bound, buffers, grid, group, error_buf_idx, check, copied)

        try:
            if tensors and self._device.shaders_by_operator():
                launch_on_tape(self._name, grid, group, tensors, run, self.place)
            else:
                run(tensors)
        finally:
            stray = self._end(guarded, begun)  # after a fault, too: the next launch is not to blame
            if check is not None:
                check.report(self._device)
        if stray is not None:
            self._refuse_stray(bound, guarded[stray[0]], *stray[1:])

    def _may_be_written(self, bound: Arguments) -> list[torch.Tensor]:
        """The tensors that it may write, all of those in tables included."""
        found: list[torch.Tensor] = []
        for index, slot in enumerate(bound.slots):
            if not isinstance(slot, torch.Tensor) or self._written >> index & 1:
                found += tensors_of(slot)
        return found

    def _refuse_stray(self, bound: Arguments, tensor: torch.Tensor, offset: int, count: int, size: int) -> None:
        argument = next(i for i, slot in enumerate(bound.slots) if any(one is tensor for one in tensors_of(slot)))
        raise RuntimeError(stray_text(self._name, argument, offset, count, size, self._is_compiled))

    def _run(
        self,
        bound: Arguments,
        tensors: Sequence[torch.Tensor],
        grid: Sizes3,
        group: Sizes3,
        error_index: int | None,
        check: CheckedLaunch | None,
        copied: Copied = (),
    ) -> None:
        """Runs it on tensors whose addresses are this machine's."""
        errors = None if error_index is None else (error_index, ErrorBuffer())
        if check is not None:
            self._run_checked(Launch(self._name, self._entry, bound, tensors, grid, group, errors), check)
        else:
            self._choose_form(grid, group)
            report = self._launch(bound, tensors, grid, group, errors, copied)
            if report is not None and report.signal:
                self._raise_fault(report, bound, "", errors is not None, copied)
        message = errors[1].first() if errors is not None else None
        if message is not None:
            self._device.note_shader_error(self._name, message)

    def _run_checked(self, launch: Launch, check: CheckedLaunch) -> None:
        """Runs it with groups of it under the checker, and all others in the plain form."""
        assert self._checks is not None
        others = self if check.sample.whole else self._checks.plain(self._name)
        others._choose_form(launch.grid, launch.group)
        report = Report()
        check.run(launch, others._entry, report)
        if report.signal:
            self._raise_fault(report, launch.bound, check.why, launch.errors is not None)
        if check.stray is not None:
            raise RuntimeError(stray_text(self._name, *check.stray))

    def _raise_fault(
        self, report: Report, bound: Arguments, why: str, with_errors: bool = False, copied: Copied = ()
    ) -> NoReturn:
        raise_interrupt(report)
        missing = int(self._entry.buffers) - len(bound.slots) - with_errors
        raise RuntimeError(why or fault_text(self._name, report, _ranges(bound, copied), missing))

    def _choose_form(self, grid: Sizes3, group: Sizes3) -> None:
        """Has this launch and the later ones run with each thread as a fiber, if its groups lie in another way."""
        if self._axis is None or lies_along(self._axis, grid, group):
            return
        assert self._with_fibers is not None
        fibers = self._with_fibers()[self._name]
        assert isinstance(fibers, KernelEntry)
        self._entry, self._launch, self._axis = fibers, Launcher(fibers), None
        self._repeated.clear()


def _as_argument(given: torch.Tensor | int | None) -> torch.Tensor | int | Constant:
    if given is None:
        return Constant(b"")
    if isinstance(given, torch.Tensor) and given.is_cpu and given.dim() == 1:
        return Constant(given.numpy().tobytes() + bytes(PADDING))
    return given


def _as_words(values: list[Any], tensors: Sequence[int], copied: Copied) -> list[Any]:
    """The same list with addresses in place of tensors."""
    for place in tensors:
        values[place] = address_of(values[place], copied) if copied else values[place].data_ptr()
    return values


def _refuse_traced(tensors: Sequence[torch.Tensor]) -> None:
    """Raises torch's own error for tensors that a compiler traces with: there is no memory to launch on."""
    for one in tensors:
        if type(one) is not TENSOR and isinstance(one, FakeTensor | FunctionalTensor):
            one.data_ptr()


def _ranges(bound: Arguments, copied: Copied) -> list[tuple[int, int, int]]:
    """Argument, address and bytes of each storage."""
    found = []
    for index, slot in enumerate(bound.slots):
        for tensor in tensors_of(slot):
            storage = tensor.untyped_storage()
            found.append((index, address_of(storage, copied), storage.nbytes()))
    return found
