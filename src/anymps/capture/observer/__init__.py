"""The source on any device: the native core observes all operators, and does not own the device that they run on."""

from __future__ import annotations

from anymps.capture.observer._core import ObserverCore
from anymps.capture.observer._refusals import kind_of
