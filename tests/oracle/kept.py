"""What the kernels answered, kept in a file: to compare with them where they cannot run.

`python -m tests.oracle --keep FILE` runs the kernels and writes the file; `--kept FILE` reads it in their place, with
`--substrate cuda` on a card, for example. Kept are the calls whose launches are described, by operator and arguments: a
call with other arguments, such as a backward whose forward was rounded otherwise, has no answer and is left out.
Optimizers get fewer and smaller tensors, as the file holds all that they write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from anymps.metal.kernels import KernelLibrary, Launcher

from . import families, optimizers, pairs, rows

Answer = tuple[list[torch.Tensor] | None, list[torch.Tensor]]
"""The results, None for a call that no kernel is known for; and what the call has written into its arguments."""

_LARGEST = 1 << 20  # numbers of an answer that is kept


class Answers:
    """The answers by call, and how many calls had one or none."""

    def __init__(self) -> None:
        self.operators: list[str] = []
        self.by_call: dict[str, Answer] = {}
        self.found = self.missing = 0

    def save(self, path: Path) -> None:
        """Writes the file."""
        torch.save({"operators": self.operators, "answers": self.by_call}, path)

    @classmethod
    def load(cls, path: Path) -> Answers:
        """Reads one."""
        answers, kept = cls(), torch.load(path, weights_only=True)
        answers.operators, answers.by_call = kept["operators"], kept["answers"]
        return answers


class NoLibrary:
    """In the place of a library whose kernels are not here: it has none, so that only kept answers are compared."""

    def __contains__(self, name: object) -> bool:
        return False

    def __dir__(self) -> list[str]:
        return []


class _Keeping:
    """A launcher whose answers are kept."""

    def __init__(self, answers: Answers, library: KernelLibrary, release: tuple[int, int]) -> None:
        self._answers, self._inner = answers, Launcher(library, release)
        answers.operators = self._inner.operators()

    def operators(self) -> list[str]:
        """Those that may have an answer."""
        return self._answers.operators

    def __call__(self, operator: str, arguments: list[Any], foreign: list[int]) -> tuple[torch.Tensor, ...] | None:
        call = digest(operator, arguments)
        results = self._inner(operator, arguments, foreign)
        written = [one.clone() for one in _written(operator, arguments)]
        kept = [one.detach().clone() for one in results] if results is not None else None
        if sum(one.numel() for one in [*(kept or []), *written]) <= _LARGEST:
            self._answers.by_call[call] = kept, written
        return results


class Reading:
    """A launcher that knows the kept answers alone."""

    def __init__(self, answers: Answers, *_: object) -> None:
        self._answers = answers

    def operators(self) -> list[str]:
        """Those that may have an answer."""
        return self._answers.operators

    def __call__(self, operator: str, arguments: list[Any], foreign: list[int]) -> tuple[torch.Tensor, ...] | None:
        answer = self._answers.by_call.get(digest(operator, arguments))
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
    """Keeps what the launchers of all comparisons answer."""
    yield from _with(Answers(), _Keeping)


@contextmanager
def reading(path: Path) -> Iterator[Answers]:
    """Answers from a file in the place of the kernels."""
    yield from _with(Answers.load(path), Reading)


def _with(answers: Answers, kind: Any) -> Iterator[Answers]:
    def launcher(library: Any, release: tuple[int, int]) -> Any:
        return kind(answers, library, release)

    with (
        mock.patch.object(pairs, "Launcher", launcher),
        mock.patch.object(rows, "Launcher", launcher),
        mock.patch.object(families, "Launcher", launcher),
        mock.patch.object(optimizers, "Launcher", launcher),
        mock.patch.object(optimizers, "SIZES", ((3, 5), (0,), (7_000,), (1,), (33,))),
        mock.patch.object(optimizers, "MANY", 1),
        mock.patch.object(optimizers, "CHUNKS", ()),
    ):
        yield answers


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
        plain = value.detach().resolve_conj().resolve_neg().contiguous()
        found.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    elif isinstance(value, (list, tuple)):
        for one in value:
            _add(found, one)
    else:
        found.update(repr(value).encode())


def _written(operator: str, arguments: list[Any]) -> list[torch.Tensor]:
    """The tensors that a call writes, in the order of its arguments."""
    name, _, overload = operator.removeprefix("aten::").partition(".")
    schema = getattr(getattr(torch.ops.aten, name), overload or "default")._schema
    found: list[torch.Tensor] = []
    for said, value in zip(schema.arguments, arguments, strict=True):
        if said.alias_info is not None and said.alias_info.is_write:
            found += [one for one in (value if isinstance(value, (list, tuple)) else [value]) if one is not None]
    return found
