"""Errors that kernels left on the device: they are raised at the end of the phase that caused them."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from anymps.capture import LateError, SuiteCapture
from anymps.pytest_plugin._words import place

_WHERE = {"setup": "setup of the test", "call": "test", "teardown": "teardown of the test", "collect": "import"}
_SECTION = "mps device"


class LateErrors:
    """Those of one attempt at a test."""

    def __init__(self, capture: SuiteCapture | None, root: str) -> None:
        self._capture = capture
        self._root = root
        self._raised: BaseException | None = None
        self._text = ""

    def drained(self, phase: str) -> Generator[None, object, object]:
        """Around a phase: raise torch.AcceleratorError for what it left, unless it has failed already.

        torch raises such an error at the next wait (2.11 to 2.15, MPSStream::checkLastError), wherever that is.
        """
        self._raised, self._text = None, ""
        try:
            result = yield
        except BaseException as error:
            self._take(phase)
            if self._text and isinstance(error, pytest.skip.Exception):
                raise self._error() from None
            raise
        self._take(phase)
        if self._text:
            raise self._error()
        return result

    def tell(self, report: pytest.TestReport, call: pytest.CallInfo[object]) -> None:
        """Say it in the report of the phase: in place of a traceback, which ends in the gate, or beside another one."""
        if not self._text or not report.failed:
            return
        if call.excinfo is not None and call.excinfo.value is self._raised:
            report.longrepr = call.excinfo.getrepr(style="value")
        else:
            report.sections.append((_SECTION, self._text))

    def _take(self, phase: str) -> None:
        late = self._capture.late_error() if self._capture is not None else None
        self._text = told(late, phase, self._root) if late is not None else ""

    def _error(self) -> BaseException:
        import torch

        self._raised = torch.AcceleratorError(self._text)
        return self._raised


def told(late: LateError, phase: str, root: str) -> str:
    """The device's own words, the line that made the error, and why nothing has raised it."""
    return (
        f"{late.message}\n"
        f"Made at {place(late.site, root)}\n"
        f"Nothing waited for the GPU between this line and the end of the {_WHERE[phase]}. "
        "On a Mac the next wait raises the error, often in another test."
    )
