"""anymps: PyTorch's `mps` device (the Apple GPU) on any machine, and the tools to train well on it."""

from __future__ import annotations

from anymps._errors import (
    AnympsError,
    BuildError,
    CheckpointError,
    EnableError,
    MacError,
    RecordingError,
    RequireError,
    UnsupportedTorchError,
    UsageError,
)
from anymps._version import __version__
from anymps.device import enable, is_virtual
from anymps.mac import Mac, parse_mac
from anymps.record import Recording
from anymps.record._start import record

__all__ = [
    "AnympsError",
    "BuildError",
    "CheckpointError",
    "EnableError",
    "Mac",
    "MacError",
    "Recording",
    "RecordingError",
    "RequireError",
    "UnsupportedTorchError",
    "UsageError",
    "__version__",
    "enable",
    "is_virtual",
    "parse_mac",
    "record",
]
