"""What the kernels answered, kept in a file: to compare with them where they cannot run.

`python -m tests.oracle --keep FILE` runs the kernels and writes the file; `--kept FILE` reads it in their place, with
`--substrate cuda` on a card, for example. Answers are found by the operator, or the kernel, and the bits of what it was
given; a call that is made of another's results has other bits where that was rounded otherwise, and so no answer. The
calls of families, which are made of samples, are kept whole, and made again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from anymps.kernels import KernelLibrary, Launcher

from . import asked, families, pairs, rows
from .compare import Difference
from .values import DTYPES

Answer = tuple[list[torch.Tensor] | None, list[torch.Tensor]]
"""The results, None for a call that no kernel is known for; and what the call has written into its arguments."""

Call = dict[str, Any]
"""A call that is made again: operator, arguments, results, dtype, and whether algorithms are deterministic."""

_LARGEST = 1 << 17  # numbers of an answer that is kept
_LARGEST_CALL = 1 << 14  # numbers of a call that is made again, its arguments and its results


@dataclass
class Answers:
    """The answers by call, those of single kernels, calls that are made again, and how many had an answer or none."""

    operators: list[tuple[str, bool]] = field(default_factory=list)
    by_call: dict[str, Answer] = field(default_factory=dict)
    kernels: dict[str, list[str]] = field(default_factory=dict)  # the names of their buffers, by their own
    by_launch: dict[str, dict[int, torch.Tensor]] = field(default_factory=dict)  # what is written, by the argument
    families: list[Call] = field(default_factory=list)
    found: int = 0
    missing: int = 0

    def save(self, path: Path) -> None:
        """Writes the file."""
        names = ("operators", "by_call", "kernels", "by_launch", "families")
        pool: dict[Any, torch.Tensor] = {}
        torch.save({name: _shared(getattr(self, name), pool) for name in names}, path)

    @classmethod
    def load(cls, path: Path) -> Answers:
        """Reads one."""
        return cls(**torch.load(path, weights_only=True))


class NotKept(RuntimeError):
    """A launch has no answer in the file."""


class KeptLibrary:
    """In the place of a library whose kernels are not here: of their launches those that were kept."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __contains__(self, name: object) -> bool:
        return name in self._answers.kernels

    def __dir__(self) -> list[str]:
        return list(self._answers.kernels)

    def __getitem__(self, name: str) -> Any:
        def launch(*given: Any, **named: Any) -> None:
            written = self._answers.by_launch.get(digest(name, [*given, sorted(named.items())]))
            if written is None:
                self._answers.missing += 1
                raise NotKept(f"a launch of {name} was not kept")
            self._answers.found += 1
            for at, kept in written.items():
                given[at].copy_(kept)

        return _kernel(launch, self._answers.kernels[name])


class KeepingLibrary:
    """A library whose launches are kept."""

    def __init__(self, answers: Answers, library: KernelLibrary) -> None:
        self._answers, self.inner = answers, library

    def __contains__(self, name: object) -> bool:
        return name in self.inner

    def __dir__(self) -> list[str]:
        return dir(self.inner)

    def __getitem__(self, name: str) -> Any:
        kernel = self.inner[name]
        buffers = [one.name for one in kernel.signature.buffers]
        self._answers.kernels[name] = buffers

        def launch(*given: Any, **named: Any) -> None:
            call = digest(name, [*given, sorted(named.items())])
            before = [one.cpu().clone() if isinstance(one, torch.Tensor) else None for one in given]
            kernel(*given, **named)
            after = [one.cpu().clone() if isinstance(one, torch.Tensor) else None for one in given]
            self._answers.by_launch[call] = {
                at: new
                for at, (old, new) in enumerate(zip(before, after, strict=True))
                if old is not None and new is not None and _bits(old) != _bits(new)
            }

        return _kernel(launch, buffers)


def _if_kept(call: Callable[..., Any], otherwise: Any) -> Callable[..., Any]:
    """A call that tells where there is no answer as where there is no kernel."""

    def tried(*given: Any) -> Any:
        try:
            return call(*given)
        except NotKept:
            return otherwise

    return tried


def _kernel(launch: Callable[..., None], buffers: list[str]) -> Any:
    """A callable that has the signature of a kernel."""
    launch.signature = SimpleNamespace(buffers=[SimpleNamespace(name=one) for one in buffers])  # type: ignore[attr-defined]
    return launch


class _Keeping:
    """A launcher whose answers are kept: by their calls, or the calls themselves in a list."""

    def __init__(
        self,
        answers: Answers,
        library: Any,
        release: tuple[int, int],
        looks_back: bool = True,
        calls: list[Call] | None = None,
        dtype: Callable[[], Any] = lambda: None,
    ) -> None:
        self._answers, self._inner = answers, Launcher(library.inner, release, looks_back)
        self._looks_back, self._calls, self._dtype = looks_back, calls, dtype
        answers.operators = self._inner.operators()

    def operators(self) -> list[tuple[str, bool]]:
        """Those that may have an answer."""
        return self._answers.operators

    def __call__(self, operator: str, arguments: list[Any], foreign: list[int]) -> tuple[torch.Tensor, ...] | None:
        call = digest(operator, [*arguments, self._looks_back, *_setting()])
        before = _cloned(arguments)
        results = self._inner(operator, arguments, foreign)
        written = _cloned(_written(operator, arguments))
        kept = [one.detach().clone() for one in results] if results is not None else None
        numbers = _numbers([kept, written])
        if self._calls is None and numbers <= _LARGEST:
            self._answers.by_call[call] = kept, written
        elif self._calls is not None and kept is not None and numbers + _numbers(before) <= _LARGEST_CALL:
            names = [one.name for one in _schema(operator).arguments]
            self._calls.append(
                {
                    "operator": operator,
                    "arguments": dict(zip(names, before, strict=True)),
                    "results": kept,
                    "dtype": self._dtype(),
                    "deterministic": torch.are_deterministic_algorithms_enabled(),
                }
            )
        return results


class Reading:
    """A launcher that knows the kept answers alone."""

    def __init__(self, answers: Answers, looks_back: bool = True) -> None:
        self._answers, self._looks_back = answers, looks_back

    def operators(self) -> list[tuple[str, bool]]:
        """Those that may have an answer."""
        return self._answers.operators

    def __call__(self, operator: str, arguments: list[Any], foreign: list[int]) -> tuple[torch.Tensor, ...] | None:
        answer = self._answers.by_call.get(digest(operator, [*arguments, self._looks_back, *_setting()]))
        if answer is None:
            self._answers.missing += 1
            return None
        results, written = answer
        for one, kept in zip(_written(operator, arguments), written, strict=True):
            one.copy_(kept)
        self._answers.found += results is not None
        return tuple(results) if results is not None else None


@contextmanager
def keeping() -> Iterator[Answers]:
    """Keeps what the launchers of all comparisons answer. The library must be a `KeepingLibrary`."""
    answers, now = Answers(), [torch.float32]

    def noting(calls: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def with_dtype(what: Any, dtype: torch.dtype) -> Iterator[Any]:
            now[0] = dtype
            yield from calls(what, dtype)

        return with_dtype

    def launcher(library: Any, release: tuple[int, int], looks_back: bool = True) -> Any:
        return _Keeping(answers, library, release, looks_back)

    def of_families(library: Any, release: tuple[int, int]) -> Any:
        return _Keeping(answers, library, release, calls=answers.families, dtype=lambda: now[0])

    with ExitStack() as stack:
        for place in (pairs, rows, asked):
            stack.enter_context(mock.patch.object(place, "Launcher", launcher))
        stack.enter_context(mock.patch.object(families, "Launcher", of_families))
        for name in ("_calls", "_further"):
            stack.enter_context(mock.patch.object(families, name, noting(getattr(families, name))))
        yield answers


@contextmanager
def reading(path: Path) -> Iterator[Answers]:
    """Answers from a file in the place of the kernels. The library must be a `KeptLibrary`."""
    answers = Answers.load(path)

    def launcher(library: Any, release: tuple[int, int], looks_back: bool = True) -> Any:
        return Reading(answers, looks_back)

    with ExitStack() as stack:
        for place in (pairs, rows, asked):
            stack.enter_context(mock.patch.object(place, "Launcher", launcher))
        for name in ("run_kernel", "run_cast"):
            stack.enter_context(mock.patch.object(pairs, name, _if_kept(getattr(pairs, name), None)))
        known = [dataclasses.replace(one, launch=_if_kept(one.launch, False)) for one in rows.ROWS]
        stack.enter_context(mock.patch.object(pairs, "ROWS", known))
        stack.enter_context(mock.patch.object(pairs, "compare_families", return_value=families_again(answers)))
        yield answers


def families_again(answers: Answers) -> Iterator[tuple[str, torch.dtype, Difference]]:
    """The rows of families.py, of calls that are made again."""
    found: dict[tuple[str, torch.dtype], Difference] = {}
    for call in answers.families:
        made = _made(answers, call)
        if made is not None:
            packet = call["operator"].partition("::")[2].partition(".")[0]
            seen = found.setdefault((packet.strip("_"), call["dtype"]), Difference())
            given = list(call["arguments"].values())
            for device, kernel in families.compared(packet, given, made, tuple(call["results"])):
                seen.add(device, kernel.reshape(device.shape), (device,))
    for packet in dict.fromkeys(packet for packet, _ in found):
        for dtype in DTYPES:
            if (packet, dtype) in found and found[packet, dtype].elements:
                yield packet, dtype, found[packet, dtype]


def _made(answers: Answers, call: Call) -> list[Any] | None:
    """The results of a call on the device; None where this release has no such call."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(call["deterministic"])
    try:
        schema = _schema(call["operator"])
        given = {one.name: _on_device(call["arguments"][one.name]) for one in schema.arguments}
        result = _overload(call["operator"])(
            *(given[one.name] for one in schema.arguments if not one.kwarg_only),
            **{one.name: given[one.name] for one in schema.arguments if one.kwarg_only},
        )
    except (RuntimeError, NotImplementedError, TypeError, KeyError, AttributeError):
        answers.missing += 1
        return None
    finally:
        torch.use_deterministic_algorithms(before)
    answers.found += 1
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [one.cpu() if isinstance(one, torch.Tensor) else one for one in results]


def _setting() -> list[Any]:
    """What else decides which kernel runs."""
    return [os.environ.get("PYTORCH_MPS_PREFER_METAL", "")]


def digest(operator: str, arguments: list[Any]) -> str:
    """A call's name in the file: its operator, and the bits, shapes and strides of its arguments."""
    found = hashlib.sha256(operator.encode())
    for value in arguments:
        found.update(b"|")
        _add(found, value)
    return found.hexdigest()


def _add(found: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        found.update(f"{value.dtype}{list(value.shape)}{list(value.stride())}".encode())
        found.update(_bits(value.detach().cpu()))
    elif isinstance(value, (list, tuple)):
        for one in value:
            _add(found, one)
    else:
        found.update(repr(value).encode())


def _bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor of this machine's memory."""
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    found: bytes = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return found


def _numbers(value: Any) -> int:
    """How many numbers all tensors of a list have."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    return sum(map(_numbers, value)) if isinstance(value, (list, tuple)) else 0


def _shared(value: Any, pool: dict[Any, torch.Tensor]) -> Any:
    """The same with one tensor for all that are equal, so that the file has it once."""
    if isinstance(value, torch.Tensor):
        key = (value.dtype, value.shape, value.stride(), value.is_conj(), value.is_neg(), _bits(value))
        return pool.setdefault(key, value)
    if isinstance(value, dict):
        return {name: _shared(one, pool) for name, one in value.items()}
    return type(value)(_shared(one, pool) for one in value) if isinstance(value, (list, tuple)) else value


def _cloned(value: Any) -> Any:
    """A tensor, or those of a list, as they are now."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return [_cloned(one) for one in value] if isinstance(value, (list, tuple)) else value


def _on_device(value: Any) -> Any:
    """Tensors on mps; those of no dimension with them, as they were there when the call was seen."""
    if isinstance(value, torch.Tensor):
        return value.to("mps", copy=True)
    return [_on_device(one) for one in value] if isinstance(value, (list, tuple)) else value


def _overload(operator: str) -> Any:
    name, _, overload = operator.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, name), overload or "default")


def _schema(operator: str) -> Any:
    return _overload(operator)._schema


def _written(operator: str, arguments: list[Any]) -> list[torch.Tensor]:
    """The tensors that a call writes, in the order of its arguments."""
    found: list[torch.Tensor] = []
    for said, value in zip(_schema(operator).arguments, arguments, strict=True):
        if said.alias_info is not None and said.alias_info.is_write:
            found += [one for one in (value if isinstance(value, (list, tuple)) else [value]) if one is not None]
    return found
