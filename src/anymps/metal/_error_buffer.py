"""The buffer into which kernels report errors (`error_buf_idx`): what the next wait raises.

Layout: torch 2.13, c10/metal/error.h. As on a Mac the first message is raised and the rest forgotten
(MPSStream::checkLastError).
"""

from __future__ import annotations

import ctypes

_RECORDS = 30


class _Message(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char * 128),
        ("func", ctypes.c_char * 128),
        ("message", ctypes.c_char * 250),
        ("line", ctypes.c_uint),
    )


class ErrorBuffer(ctypes.Structure):
    """`c10::metal::ErrorMessages`, empty."""

    _fields_ = (("count", ctypes.c_uint), ("messages", _Message * _RECORDS))

    def first(self) -> str | None:
        """The message of the first report, or None if there is none."""
        if self.count == 0:
            return None
        text: bytes = self.messages[0].message
        return text.decode(errors="replace")
