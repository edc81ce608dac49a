"""What a source of a recording offers to the capture: the native core, or the observer's interface to it.

The capture's helpers for it are here too: replacements of torch's functions, and marks with facts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from anymps.record.format import TotalRow

Callback = Callable[..., Any] | None
Finish = Callable[[BaseException | None], object]
"""What to call when a watched call is through, with the exception that came or None."""
Undo = Callable[[], None]
"""What ends a watch."""
DrainedRows = tuple[Any, Any, Any, Any, Any, int, Any]
"""Entries, signatures, steps, places, names of operators, how many entries were dropped, rounds."""
Assign = Callable[["torch.UntypedStorage", int, int], None]
"""Says what a storage is: its role, and the module that holds it."""


class Core(Protocol):
    """The names and meanings are those of the native core (`device/_native.pyi`)."""

    def set_callbacks(self, refusal: Callback, surfaced: Callback, copied: Callback, module: Callback, /) -> None:
        """What to call for refusals, errors that come out later, lines that copy to mps, and new modules."""

    def tape_start(self, limit: int, /) -> None:
        """Start to watch; entries beyond the limit are only counted."""

    def tape_stop(self) -> None:
        """Stop."""

    def tape_pause(self, paused: bool, /) -> None:
        """Pause, or go on."""

    def tape_sparse(self, on: bool, /) -> None:
        """Leave plain calls out from now on, or take them in again."""

    def tape_drain(self, first_operator: int, /) -> DrainedRows:
        """Take what was written since the last drain, with the names of operators from that number on."""

    def tape_totals(self) -> Iterable[TotalRow]:
        """Sums over everything drained so far."""

    def ledger_start(self, limit: int, /) -> None:
        """Start a new ledger of buffers; rows beyond the limit are only counted."""

    def ledger_drain(self, with_living: bool, /) -> bytes:
        """Take the rows that ended since the last drain; with those still alive at the end."""

    def ledger_state(self) -> tuple[int, int]:
        """Births and deaths so far, and rows that were only counted."""

    def memory_statistics(self) -> Mapping[str, Any]:
        """What is allocated, under `allocated`: now and at the peak first, in bytes."""

    def reset_peak_memory(self) -> None:
        """Set the peak to what is allocated now."""

    def take_late_error(self) -> tuple[int, str] | None:
        """The number of the refusal and the text of the error that the next wait would raise; None for none."""

    def clock_ns(self) -> int:
        """The tape's clock."""

    def set_phase(self, phase: int, /) -> int:
        """Set the calling thread's phase and return the former one."""

    def end_step(self) -> None:
        """End a training step."""

    def note_round(self, kind: int, key: int, start_ns: int, /) -> None:
        """Note what a loop does once a round, and that it ends now."""

    def mark(self, name: str, phase: int, start_ns: int, end_ns: int, wait: int, /) -> None:
        """Write an entry of our own."""

    def note_pair(self, name: str, site: int, other: int, /) -> None:
        """Write a mark for a line and another one that belongs to it."""

    def site(self, file: str, line: int, function: str, via: str, /) -> int:
        """The number of a place in the user's code."""

    def place_lines(self, file: str, lines: dict[int, tuple[str, int, str]], /) -> None:
        """Which lines of the program those of a file that a compiler has written compute, each up to the next; a line
        0 of the program for none. Before that file runs.
        """

    def current_site(self) -> int:
        """The number of the place in the user's code that is running."""

    def is_internal(self, file: str, /) -> bool:
        """Whether a file is torch's or anymps' own, hence no place in the user's code."""

    def watch_calls(self, original: Callable[..., Any], around: Callable[..., Any], /) -> Any:
        """A callable in the place of another one that tells of each call."""

    def watch_modules(self, call: Callable[..., Any], /) -> None:
        """Note which module runs, given `torch.nn.Module.__call__`."""

    def unwatch_modules(self) -> None:
        """Note it no longer."""

    def forget_module(self, address: int, /) -> None:
        """Forget a module that is gone, by its address."""

    def forget_modules(self) -> None:
        """Forget all modules."""


def stand_in(owner: Any, name: str, replacement: object) -> Undo:
    """Put something in the place of a function of a module or class; what is returned puts the original back."""
    original = getattr_static(owner, name)  # a static method as such, not the function in it
    setattr(owner, name, replacement)
    return lambda: setattr(owner, name, original)


def note_facts(core: Core, what: str, site: int, other: int, facts: Mapping[str, object]) -> None:
    """Write a mark `anymps::<what> {"fact": value}` for a line, and another line that belongs to it (0: none)."""
    core.note_pair(f"anymps::{what} {json.dumps(facts, sort_keys=True)}", site, other)
