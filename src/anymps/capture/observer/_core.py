"""The native recorder fed by an observer of all operators, and what Python sees in the device's place.

The native core records operators, buffers, copies and call sites. This module records the device's exceptions, and
waits that are not operators.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import torch

from anymps.capture.observer._refusals import (
    DELAYED_ERROR,
    culprit_of,
    kind_of,
    refused_operator,
)
from anymps.capture.observer._waits import BindingWrappers
from anymps.device import known_hazards
from anymps.record import Fate, RefusalKind

if TYPE_CHECKING:
    from anymps.device import NativeCore


class Answer(IntEnum):
    """What an exception of a call means; the numbers are those of native/feeds/observed_exceptions.h."""

    RAISED = 0
    REFUSED = 1
    LATE = 2
    FOREIGN = 3


_OF_TORCH = frozenset(
    {
        RuntimeError,
        NotImplementedError,
        IndexError,
        TypeError,
        ValueError,
        OSError,
        torch.linalg.LinAlgError,  # type: ignore[attr-defined]
        torch.OutOfMemoryError,
        DELAYED_ERROR,
    }
)
"""What torch's kernels raise (torch 2.13: torch/csrc/Exceptions.h). A hook of Python's that runs inside a call may
raise anything, as the checkpoint's early stop does."""


class ObserverCore:
    """The native module with the parts that a device without the native core's own memory needs in another form."""

    def __init__(self, core: NativeCore, save: Callable[[], None]) -> None:
        """`core` is the native module; `save` takes the tape to the file at once: a call that may end the process is
        about to run.
        """
        self._core = core
        self._waits = BindingWrappers(self._core, self._surfaced)
        self._note_refusal: Callable[..., None] | None = None
        self._note_surfaced: Callable[[int], None] | None = None
        self._blamed = 0
        self._in_backward = False  # where the blamed line is
        self._paused = False
        self._dire = frozenset(hazard.id for hazard in known_hazards() if hazard.is_dire)
        self._saved: set[tuple[str, int]] = set()
        self.save = save

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def set_callbacks(self, refusal: Any, surfaced: Any, copied: Any, module: Any) -> None:
        """What to call for refusals, errors that come out later, lines that copy to mps, and new modules."""
        self._note_refusal, self._note_surfaced = refusal, surfaced
        self._core.set_callbacks(refusal, surfaced, copied, module)

    def current_site(self) -> int:
        """The line that runs, or the one that a late error is put down to."""
        return self._blamed or int(self._core.current_site())

    def tape_start(self, limit: int) -> None:
        """Start to observe, on all threads."""
        self._core.tape_start(limit, True)
        self._core.observe(self._raised, self._met)
        self._waits.install()

    def tape_stop(self) -> None:
        """Stop, and leave torch as it was."""
        self._waits.remove()
        self._core.stop_observing()
        self._core.tape_stop()

    def assign_storage(self, storage: torch.UntypedStorage, role: int, module: int) -> None:
        """Say what a storage is."""
        self._core.assign_seen(storage._cdata, role, module)

    def memory_statistics(self) -> dict[str, tuple[int, int]]:
        """What is allocated now, and the peak of the samples since it was reset, in bytes."""
        return {"allocated": self._core.seen_memory()}

    def reset_peak_memory(self) -> None:
        """Set the peak to what is allocated now."""
        self._core.reset_seen_peak()

    def tape_pause(self, paused: bool) -> None:
        """Pause, or go on."""
        self._paused = paused
        self._core.tape_pause(paused)

    def take_late_error(self) -> tuple[int, str] | None:
        """Wait for the device. The number of the refusal and the text of the error that comes out, None for none."""
        was_paused = self._paused
        self.tape_pause(True)  # the program did not ask for this wait
        late: Exception | None = None
        try:
            torch._C._mps_deviceSynchronize()
        except DELAYED_ERROR as error:
            late = error
        finally:
            self.tape_pause(was_paused)
        return None if late is None else (self._put_down(late), str(late))

    # --- what the native core and the stand-ins tell

    def _raised(
        self,
        operator: str,
        error: Exception,
        tensors: list[torch.Tensor],
        wide_complex: bool,
        line: int,
        in_backward: bool,
    ) -> Answer:
        """Say what an exception of a call means, and note it if mps alone would have raised it."""
        if isinstance(error, DELAYED_ERROR):
            self._surfaced(error)
            return Answer.LATE
        if type(error) not in _OF_TORCH:
            return Answer.FOREIGN
        kind = kind_of(error, wide_complex=wide_complex)
        if kind is None:
            return Answer.RAISED
        self._blamed, self._in_backward = line, in_backward  # a backward's error arrives where the backward was called
        try:
            self._refused(kind, refused_operator(kind, operator, str(error)), error, culprit_of(kind, tensors))
        finally:
            self._blamed, self._in_backward = 0, False
        return Answer.REFUSED

    def _refused(self, kind: RefusalKind, operator: str, error: Exception, culprit: torch.Tensor | None) -> int:
        fate = Fate.MISSING if kind is RefusalKind.MISSING else Fate.REFUSED
        number = int(self._core.refused(operator, int(fate), self._blamed, self._in_backward))
        if self._note_refusal is not None:
            self._note_refusal(number, kind.value, operator, type(error).__name__, str(error), culprit)
        return number

    def _surfaced(self, error: Exception) -> None:
        """An error that a kernel has left comes out at a wait."""
        if isinstance(error, DELAYED_ERROR) and not self._paused:
            number = self._put_down(error)
            if self._note_surfaced is not None:
                self._note_surfaced(number)

    def _put_down(self, error: Exception) -> int:
        """Write the refusal of an error that has come out, and give its number.

        Whose it is, the device does not say: it is put down to another line than this one only if a single line has
        given the device indices to look at since the last wait.
        """
        operator, self._blamed = self._core.take_checked()
        try:
            return self._refused(RefusalKind.INDEX, operator if self._blamed else "anymps::wait", error, None)
        finally:
            self._blamed = 0

    def _met(self, identity: str, site: int) -> None:
        """A call is about to meet a known bug."""
        if identity in self._dire and (identity, site) not in self._saved:
            self._saved.add((identity, site))
            self.save()
