"""The source that works on any device: the native core observes all operators, without owning their device."""

from __future__ import annotations

from anymps.capture.observer._core import ObserverCore
from anymps.capture.observer._refusals import kind_of
