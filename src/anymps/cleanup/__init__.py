"""Removes files and ends processes when a process ends, by a signal too, or at the next start of anymps."""

from anymps.cleanup._descendants import adopt_descendants, children, end_children
from anymps.cleanup._leftovers import PrivateFolder, hold, remove_leftover, remove_leftovers
from anymps.cleanup._termination import ENDING_SIGNALS, SignalHandlers, leave_signals, termination_raises
