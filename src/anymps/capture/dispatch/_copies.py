"""Copies with `non_blocking=True` that are under way, and who touches their host side before the next wait.

The rules are those of native/recorder/nonblocking.cpp, as far as a dispatch mode sees: operators, `Tensor.numpy` and
`tolist`. What goes by `data_ptr`, a storage or DLPack is seen only as a source that has changed.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from anymps.capture.dispatch._tape import PythonTape

_MOST_BYTES = 256 << 20
_MOST_COPIES = 4096
# Operators that look at a tensor's shape only.
_READ_NO_VALUES = (
    "aten::empty_like", "aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::rand", "aten::new_",
    "aten::is_", "aten::_to_copy", "aten::set_data", "aten::record_stream", "aten::resize_", "aten::sym_",
)  # fmt: skip


@dataclass
class _Copy:
    """One copy; `source` is held for a copy to mps, `storage` names the host's side."""

    number: int
    site: int
    storage: int
    source: torch.Tensor | None = None
    held: torch.UntypedStorage | None = None
    print: int = 0
    changed_at: int = 0
    changed_by: str = ""
    told: bool = False


class PendingCopies:
    """The copies of one recording."""

    def __init__(self, tape: PythonTape) -> None:
        self._tape = tape
        self._copies: list[_Copy] = []
        self._watched: Counter[int] = Counter()
        self._bytes = 0
        self._readers: list[Callable[[], None]] = []
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self._copies)

    def started(self, destination: torch.Tensor, source: torch.Tensor) -> None:
        """A copy between host and device has begun and did not wait."""
        if source.is_mps:
            self._add(_Copy(0, 0, destination.untyped_storage()._cdata, held=destination.untyped_storage()))
            self._replace_readers()
        elif source.dtype == destination.dtype and source.layout is torch.strided and _covers(source):
            second = source.detach()
            copy = _Copy(0, 0, source.untyped_storage()._cdata, source=second, print=_fingerprint(second))
            self._bytes += second.nbytes
            self._add(copy)

    def waited(self, up_to: int | None = None) -> None:
        """The host has waited, for all copies or for the first ones."""
        if self._copies:
            self._let_go(True, [copy for copy in self._copies if up_to is None or copy.number <= up_to])

    def end(self) -> None:
        """The recording ends: what is under way is looked at without a wait."""
        self._let_go(False, list(self._copies))

    def touched(self, name: str, tensors: list[tuple[int, torch.Tensor]], writes: frozenset[int]) -> None:
        """An operator is about to run on these tensors; `writes` are the places of those that it writes."""
        if not self._copies or name.startswith(_READ_NO_VALUES):
            return
        for place, tensor in tensors:
            if tensor.device.type == "cpu" and tensor.layout is torch.strided:
                storage = tensor.untyped_storage()._cdata
                if storage in self._watched:
                    self._touch(storage, name, place in writes)

    def overwritten(self, destination: torch.Tensor) -> None:
        """A copy to the CPU queues behind those to mps: their sources are looked at now, before it writes."""
        storage = destination.untyped_storage()._cdata
        if storage in self._watched:
            self._let_go(False, [copy for copy in self._copies if copy.storage == storage and copy.source is not None])

    def _touch(self, storage: int, name: str, writes: bool) -> None:
        here = self._tape.sites.current()
        for copy in self._copies:
            if copy.storage != storage:
                continue
            if copy.source is not None:
                if writes and not copy.changed_by:
                    copy.changed_at, copy.changed_by = here, name
            elif not copy.told:
                copy.told = True
                self._tape.unsafe_copy(f"anymps::copy.MPS703 {name}", here or copy.site, copy.site, 0)

    def _add(self, copy: _Copy) -> None:
        self.count += 1
        copy.number, copy.site = self.count, self._tape.sites.current()
        self._watched[copy.storage] += 1
        self._copies.append(copy)
        while len(self._copies) > 1 and (self._bytes > _MOST_BYTES or len(self._copies) > _MOST_COPIES):
            self._let_go(False, self._copies[:1])

    def _let_go(self, waits: bool, due: list[_Copy]) -> None:
        held = Counter(self._watched)
        gone = {id(copy) for copy in due}
        self._copies = [copy for copy in self._copies if id(copy) not in gone]
        for copy in due:
            self._watched[copy.storage] -= 1
            if not self._watched[copy.storage]:
                del self._watched[copy.storage]
            if copy.source is not None:
                self._bytes -= copy.source.nbytes
                self._judge(copy, held[copy.storage], waits)
        if not any(copy.held is not None for copy in self._copies):
            while self._readers:
                self._readers.pop()()

    def _judge(self, copy: _Copy, held: int, waits: bool) -> None:
        assert copy.source is not None
        storage = copy.source.untyped_storage()
        here = self._tape.sites.current() if waits else 0
        if storage.nbytes() < copy.source.nbytes or _fingerprint(copy.source) != copy.print:
            name = f"anymps::copy.MPS701 {copy.changed_by}"
            self._tape.unsafe_copy(name, copy.changed_at or copy.site, copy.site, here)
        # One holder is the name in this function. Memory that torch has not allocated may have an owner not seen here.
        if waits and storage.resizable() and torch._C._storage_Use_Count(storage._cdata) <= held + 1:
            self._tape.unsafe_copy("anymps::copy.MPS702 ", copy.site, copy.site, here)

    def _replace_readers(self) -> None:
        """While a copy to the CPU is under way: the methods of Tensor that read values without an operator."""
        if self._readers:
            return
        for name in ("numpy", "tolist"):
            original = getattr(torch.Tensor, name)
            setattr(torch.Tensor, name, self._reader(name, original))
            self._readers.append(lambda name=name: delattr(torch.Tensor, name))  # type: ignore[misc]

    def _reader(self, name: str, original: Any) -> Callable[..., Any]:
        def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if isinstance(tensor, torch.Tensor):
                self.touched(f"torch.Tensor.{name}", [(0, tensor)], frozenset())
            return original(tensor, *args, **kwargs)

        return read


def returns_early(destination: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether a copy with `non_blocking=True` does not wait: to the CPU always, to mps only with equal strides."""
    if source.device.type != "cpu" or destination.device.type == "cpu":
        return True
    if destination.shape != source.shape:
        return False
    ours, theirs = source.stride(), destination.stride()
    return all(size <= 1 or a == b for size, a, b in zip(source.shape, ours, theirs, strict=True))


def _covers(tensor: torch.Tensor) -> bool:
    """Whether the elements lie side by side, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _fingerprint(tensor: torch.Tensor) -> int:
    if tensor.untyped_storage().nbytes() < tensor.nbytes:
        return 0
    return hash(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))
