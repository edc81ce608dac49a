"""The core that a recording is taken from, and what its watchers share: replacing functions, writing marks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

    from anymps.device import NativeCore

Core: TypeAlias = "NativeCore"
"""The native core, or an `ObserverCore`, which hands on what it does not have itself."""
Finish = Callable[[BaseException | None], object]
"""What to call when a watched call is through, with the exception that came or None."""
Undo = Callable[[], None]
"""What ends a watch."""
Assign = Callable[["torch.UntypedStorage", int, int], None]
"""Says what a storage is: its role, and the module that holds it."""


def stand_in(owner: Any, name: str, replacement: object) -> Undo:
    """Put something in the place of a function of a module or class.

    What is returned puts the original back, where nobody has replaced it in turn.
    """
    original = getattr_static(owner, name)  # a static method as such, not the function in it
    setattr(owner, name, replacement)

    def put_back() -> None:
        if getattr_static(owner, name) is replacement:
            setattr(owner, name, original)

    return put_back


def note_facts(core: Core, what: str, site: int, other: int, facts: Mapping[str, object]) -> None:
    """Write a mark `anymps::<what> {"fact": value}` for a line, and another line that belongs to it (0: none)."""
    core.note_pair(f"anymps::{what} {json.dumps(facts, sort_keys=True)}", site, other)
