"""The exceptions of anymps.

AnympsError
├── MacError              also a ValueError    the named Mac is unknown or was never sold
├── BuildError            also a RuntimeError  the native core cannot be built
├── EnableError           also a RuntimeError  the device cannot be switched on
│   ├── UnsupportedTorchError                  the installed torch is outside the supported range
│   └── RequireError                           `--require real` or `--require virtual` is not met
├── RecordingError        also a ValueError    a file is not a recording, is cut short, has another schema version
│                                              or cannot be written
├── PlanError             also a RuntimeError  a script cannot be planned as it is
├── CheckpointError       also a ValueError    a checkpoint cannot be read, converted or written
├── CostError             also a ValueError    a call of an operator cannot be read, or no time can be predicted
├── KernelsError          also a ValueError    compiled Metal kernels cannot be read, kept or run
└── UsageError                                 a command line that makes no sense

All of them are mistakes that the user can mend: a command prints the one-line text and exits with `exit_code`, without
a traceback. Errors of the real backend are not in this tree: they keep torch's own classes and words (`anymps.rules`).
"""

from __future__ import annotations

import errno
from typing import ClassVar, Final

FAULT: Final = 70
"""Exit status of a command that ends with a bug of anymps itself (EX_SOFTWARE of sysexits.h)."""


TOO_MANY_FILES: Final = (errno.EMFILE, errno.ENFILE)
MORE_FILES: Final = "too many files are open at once: allow more (ulimit -n 256)"
"""What a command says where a limit lets it open no further file."""


class AnympsError(Exception):
    """Base class of all errors that anymps itself raises."""

    exit_code: ClassVar[int] = 2
    """Exit status of a command that ends with this error (2: usage or environment)."""

    @property
    def reason(self) -> str:
        """Its text for the middle of a sentence: some begin with our name, for a traceback that shows them alone."""
        return str(self).removeprefix("anymps: ")


class MacError(AnympsError, ValueError):
    """No Mac in the text, or one that was never sold."""


class BuildError(AnympsError, RuntimeError):
    """The native core cannot be compiled or loaded."""


class EnableError(AnympsError, RuntimeError):
    """The device cannot be switched on in this process."""


class UnsupportedTorchError(EnableError):
    """The installed torch is missing, unreadable or outside the supported range."""


class RequireError(EnableError):
    """The device is not of the kind that `--require` asks for."""


class RecordingError(AnympsError, ValueError):
    """A recording cannot be read or written."""


class PlanError(AnympsError, RuntimeError):
    """A script cannot be planned: it fails with shapes only, or does nothing on mps."""


class CheckpointError(AnympsError, ValueError):
    """A checkpoint cannot be read, converted or written."""


class CostError(AnympsError, ValueError):
    """No time can be predicted, for example for an unknown call or release of torch."""


class KernelsError(AnympsError, ValueError):
    """Compiled Metal kernels, or the wheel that holds them, cannot be read, kept or run."""


class UsageError(AnympsError):
    """Wrong usage: the command or call cannot be carried out as given."""
