"""The torch release of a recording, and the known bugs that it has."""

from __future__ import annotations

from anymps._errors import UnsupportedTorchError
from anymps.record import Recording
from anymps.rules import parse_torch_version
from anymps.rules.faults import Hazard, all_hazards


def release_of(recording: Recording) -> tuple[int, int] | None:
    """(major, minor) of the recording's torch; None where it is not known."""
    return release_in(recording.run.torch_version)


def release_in(version: str) -> tuple[int, int] | None:
    """(major, minor) of a version of torch; None where the text is none."""
    try:
        return parse_torch_version(version).release
    except UnsupportedTorchError:
        return None


def known_fault(recording: Recording, check: str) -> Hazard | None:
    """The fault that is recognised by `check`, if the recording's torch is known to have it."""
    release = release_of(recording)
    known = (hazard for hazard in all_hazards() if hazard.check == check)
    return next((fault for fault in known if release is not None and fault.since <= release <= fault.until), None)
