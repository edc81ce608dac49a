"""A program over a pool of tensors, run in two worlds, one on the CPU and one on mps, and compared after each line.

A program is Python source, one statement a line; its names live on from line to line. `DEVICE` is the world's device;
`host(t)` is a tensor's copy on the CPU in both worlds; `make` gives reproducible values; HALF, THREE, TRUE and WIDE are
0-dim CPU tensors of float32, int64, bool and float64.

Both worlds must agree in values (to the bit), geometry, versions, autograd state, shared storages, warnings and errors.
Where MPS itself is known to differ, `anymps.rules` tells from the operators that the CPU ran what must happen instead.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from anymps.rules.texts import BackendText
from device.compare import values
from device.trace import Trace

Pool = dict[str, Any]

# A tensor type is called torch.FloatTensor, CPUFloatType, torch.mps.FloatTensor or MPSFloatType.
_TYPE_NAME = re.compile(r"(?:\b(?:CPU|MPS)|torch\.(?:mps\.)?)([A-Z][A-Za-z0-9]+)(?:Type|Tensor)\b")

# MPS lacks a kernel, often for sizes that the trace ignores. It is looked for once the arguments are checked.
_LACKING = re.compile(
    r"Failed to create function state object|not supported for torch|.*Yet not supported for complex|"
    r"(std|var)(_mean)? does not support automatic differentiation for outputs with complex dtype"
)
_CHECKED = re.compile(r"The size of tensor a|mat1 and mat2 shapes|Dimension out of range|.*same device")


class Outcome(NamedTuple):
    """How a line ended: the exception's class and text (empty if it raised none), and the warnings."""

    error: type[BaseException] | None
    text: str
    warned: tuple[str, ...]

    def in_cpu_words(self) -> Outcome:
        """The same with the names of types and devices as the CPU has them."""
        return Outcome(self.error, as_on_cpu(self.text), tuple(map(as_on_cpu, self.warned)))


def make(shape: tuple[int, ...], dtype: torch.dtype, seed: int, device: str) -> torch.Tensor:
    """Reproducible values on a device, the same on all."""
    return values(*shape, dtype=dtype, seed=seed).to(device)


def host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's values in the CPU's memory."""
    return tensor.detach().cpu() if tensor.is_mps else tensor.detach().clone()


def fill(tensor: torch.Tensor) -> torch.Tensor:
    """Writes over all bytes of a tensor's storage, which a resize leaves as they happen to be."""
    torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()).fill_(1)
    return tensor


class Worlds:
    """The two worlds; `program` is what they have run so far, and `ended` whether they may have parted by the rules."""

    def __init__(self) -> None:
        self.program: list[str] = []
        self.ended = False
        # The watched world is a second one on the CPU: watching has side effects on versions.
        self.cpu, self.mps, self.watched = _new_pool("cpu"), _new_pool("mps"), _new_pool("cpu")
        self._own = set(self.cpu)
        self._hosts = {id(value): value for value in self.watched.values() if isinstance(value, torch.Tensor)}
        self.watched["host"] = self._watched_host

    def names(self) -> Iterator[str]:
        """Expressions for the tensors of the pool, the youngest last."""
        for name, value in self.cpu.items():
            if name in self._own:
                continue
            if isinstance(value, (tuple, list)):
                yield from (f"{name}[{i}]" for i, part in enumerate(value) if _is_usable(part))
            elif _is_usable(value):
                yield name

    def tensor(self, name: str, pool: Pool | None = None) -> torch.Tensor:
        """A tensor by its expression, of the CPU world if no other is given."""
        variable, _, index = name.partition("[")
        value = (pool or self.cpu)[variable]
        return value[int(index[:-1])] if index else value

    def _watched_host(self, tensor: torch.Tensor) -> torch.Tensor:
        with _disable_current_modes():
            copied = host(tensor)
        self._hosts[id(copied)] = copied
        return copied

    def run(self, line: str, refusal: BackendText | None = None) -> bool:
        """Runs a line in both worlds and compares; False if it raised.

        `refusal`: what MPS says to this line, where the operators that the CPU runs do not tell. After a refusal that
        the CPU does not know, and a call that only MPS can compute, the worlds have parted and the program has ended.
        """
        assert not self.ended
        self.program.append(line)
        code = compile(line, "<program>", "exec")
        with Trace(self._hosts) as trace:
            watched = _attempt(code, self.watched)
        before = self._sizes()
        expected = _attempt(code, self.cpu)
        found = _attempt(code, self.mps)
        assert trace.failure is None, (trace.failure, self.told())
        refusal = refusal or trace.refusal
        if found.error and _LACKING.match(found.text):
            assert not _CHECKED.match(expected.text), (expected, found, self.told())
            self.ended = True
            return False
        # What an operator's own checks say, on the CPU as on a Mac, comes before a kernel that it lacks.
        checked = expected.error is not None and expected.in_cpu_words() == found.in_cpu_words()
        if refusal is not None and not checked:
            said = BackendText(getattr(found.error, "__name__", ""), found.text)
            assert refusal == said, (refusal, found, self.told())
            self.ended = True
            return False
        # Watching, or not looking at the tensors, may change what autograd allows: later lines are unknown then.
        self.ended = watched.error is not expected.error
        blind = self.ended and expected.error is None
        if blind or (expected.error is not None and trace.widened):
            self.ended = True
            return False
        assert expected.in_cpu_words() == found.in_cpu_words(), (expected, found, self.told())
        if expected.error is not None:
            self._fill_grown(before)
        self.compare()
        return expected.error is None

    def _sizes(self) -> dict[str, int]:
        return {name: self.tensor(name).untyped_storage().nbytes() for name in self.names()}

    def _fill_grown(self, before: dict[str, int]) -> None:
        """An out= tensor that was resized before the kernel raised has whatever bytes were there."""
        for name, size in self._sizes().items():
            if size > before.get(name, size):
                for pool in (self.cpu, self.mps):
                    fill(self.tensor(name, pool))

    def forget(self, keep: int, largest: int) -> None:
        """Deletes names until `keep` are left, the oldest first, and those that are too large or of complex32."""
        kept = [name for name in self.cpu if name not in self._own]
        for name in kept:
            parts = [part for part in tree_leaves(self.cpu[name]) if isinstance(part, torch.Tensor)]
            size = sum(max(part.numel(), part.untyped_storage().nbytes() // part.element_size()) for part in parts)
            half = any(part.dtype == torch.complex32 for part in parts)  # refused late, with warnings on the way
            if not parts or half or size > largest or kept.index(name) < len(kept) - keep:
                self.program.append(f"del {name}")
                for pool in (self.cpu, self.mps, self.watched):
                    pool.pop(name, None)

    def compare(self) -> None:
        """Compares what all names stand for."""
        assert list(self.cpu) == list(self.mps), self.told()
        expected, found = (_leaves(pool, self._own) for pool in (self.cpu, self.mps))
        assert [name for name, _ in expected] == [name for name, _ in found], self.told()
        for (name, one), (_, other) in zip(expected, found, strict=True):
            _compare(name, one, other, self.told)
        assert _sharing(expected) == _sharing(found), self.told()

    def told(self) -> str:
        """The program so far."""
        return "\n".join(["", *self.program])


def _new_pool(device: str) -> Pool:
    return {
        "torch": torch,
        "F": torch.nn.functional,
        "DEVICE": device,
        "host": host,
        "fill": fill,
        "make": lambda shape, dtype, seed=0: make(shape, dtype, seed, device),
        "HALF": torch.tensor(0.5),
        "THREE": torch.tensor(3),
        "TRUE": torch.tensor(True),
        "WIDE": torch.tensor(1.25, dtype=torch.float64),
    }


def _attempt(code: Any, pool: Pool) -> Outcome:
    error, text = None, ""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            exec(code, pool)
        except Exception as raised:
            error, text = type(raised), str(raised)
    for name in ("__builtins__", "__warningregistry__"):
        pool.pop(name, None)
    return Outcome(error, text, tuple(str(warning.message) for warning in warned))


def as_on_cpu(text: str) -> str:
    """A text about mps tensors in the words for CPU ones: names of tensor types and devices."""
    return _TYPE_NAME.sub(r"torch.\1Tensor", text).replace("mps:0", "cpu")


def _leaves(pool: Pool, skipped: set[str]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in pool.items():
        if name not in skipped:
            parts = enumerate(value) if isinstance(value, (tuple, list)) else ()
            found += [(f"{name}[{i}]", part) for i, part in parts] or [(name, value)]
    found += [
        (f"{name}.grad", value.grad)
        for name, value in found
        if isinstance(value, torch.Tensor) and _is_leaf(value) is True and value.grad is not None
    ]
    return found


def _sharing(leaves: list[tuple[str, Any]]) -> list[tuple[int, int, int]]:
    """For each tensor the first one that is the same, that shares its storage, and that is its base."""
    tensors = [value for _, value in leaves if isinstance(value, torch.Tensor)]
    first: dict[int, int] = {}
    return [
        (
            first.setdefault(id(tensor), i),
            first.setdefault(tensor.untyped_storage()._cdata, i),
            first.get(id(tensor._base), -1),
        )
        for i, tensor in enumerate(tensors)
    ]


def _is_leaf(tensor: torch.Tensor) -> bool | str:
    try:
        return tensor.is_leaf
    except RuntimeError as error:  # a view of something that was written to in a way that autograd cannot follow
        return as_on_cpu(str(error))


def _is_usable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and isinstance(_is_leaf(value), bool)


def state(tensor: torch.Tensor) -> dict[str, Any]:
    """All that a tensor is besides its values and its device."""
    return {
        "type": type(tensor),
        "dtype": tensor.dtype,
        "shape": tuple(tensor.shape),
        "stride": tensor.stride(),
        "offset": tensor.storage_offset(),
        "bytes": tensor.untyped_storage().nbytes(),
        "contiguous": tensor.is_contiguous(),
        "channels last": tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last),
        "dense": torch._debug_has_internal_overlap(tensor),
        "version": tensor._version,
        "requires_grad": tensor.requires_grad if isinstance(_is_leaf(tensor), bool) else None,
        "leaf": _is_leaf(tensor),
        "view": tensor._is_view(),
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
    }


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg().reshape(-1)
    return plain.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def _compare(name: str, expected: Any, found: Any, told: Callable[[], str]) -> None:
    if not isinstance(expected, torch.Tensor):
        assert expected == found or (expected != expected and found != found), (name, expected, found, told())
        return
    assert torch.device("mps:0") == found.device, (name, told())
    wanted, got = state(expected), state(found)
    differing = {key: (wanted[key], got[key]) for key in wanted if wanted[key] != got[key]}
    assert not differing, (name, differing, told())
    host_copy = found.detach().cpu()
    if not torch.equal(_bits(expected), _bits(host_copy)):  # -0.0, and NaN of other bits
        torch.testing.assert_close(
            host_copy, expected.detach(), rtol=0, atol=0, equal_nan=True, msg=lambda text: f"{name}: {text}\n{told()}"
        )
