"""What the chip of a recording cannot do."""

from __future__ import annotations

from typing import Final

from anymps._errors import AnympsError
from anymps.mac import parse_mac
from anymps.record import Recording

_EMULATING: Final = ("apple7", "apple8")  # Metal's GPU families of M1 and M2


def emulates_bfloat16(recording: Recording) -> str:
    """Metal's family of the recording's GPU if that has no bfloat16 arithmetic; else, or if it is not known, empty."""
    try:
        family = parse_mac(str(recording.meta.get("mac") or "")).metal_family
    except AnympsError:
        return ""  # a recording of no Mac, or of one that is not known here
    return family if family in _EMULATING else ""
