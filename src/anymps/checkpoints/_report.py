"""What a conversion changed, as data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Change:
    """A tensor whose type or device is another one now. `saved` is in bytes."""

    name: str
    shape: tuple[int, ...]
    old_dtype: str
    new_dtype: str
    old_device: str
    new_device: str
    saved: int


@dataclass
class Report:
    """`source` and `target` as the user names them (`target` None: nothing was written); sizes in bytes."""

    source: str
    target: str | None
    format: str
    tensors: int = 0
    """How many there are, changed or not."""
    changes: list[Change] = field(default_factory=list)
    ties: list[list[str]] = field(default_factory=list)
    """Names that share one storage."""
    remarks: list[str] = field(default_factory=list)
    old_bytes: int = 0
    new_bytes: int = 0
