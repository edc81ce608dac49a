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
class FileReport:
    """One file: `source` and `target` as the user names them (`target` None: nothing was written); sizes in bytes."""

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
    dropped: set[str] = field(default_factory=set)
    """Names that are written as another name in the metadata."""
    names: dict[str, int] = field(default_factory=dict)
    """What was written under a name of its own, in bytes; for an index of shards."""


@dataclass
class Report:
    """All files of a conversion. `remarks` are about the files that are no checkpoints."""

    files: list[FileReport] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
