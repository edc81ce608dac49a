"""Processes that a recorded script starts: they get the device, and their recordings are joined to the script's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.children._exit_watch import ExitWatch
    from anymps.children._parts import CHILDREN_VARIABLE, ChildParts, ChildSettings, Joined
    from anymps.children._startup import begin, serve_sources, stand_aside

if not TYPE_CHECKING:
    __getattr__ = lazy_face(__name__)
