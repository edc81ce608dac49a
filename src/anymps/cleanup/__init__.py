"""What an ending leaves behind, by a signal too: files and processes that are taken away then, or by the next start."""

from anymps.cleanup._descendants import adopt_descendants, children, end_children
from anymps.cleanup._leftovers import PrivateFolder, hold, remove_leftover, remove_leftovers
from anymps.cleanup._termination import ENDING_SIGNALS, SignalHandlers, leave_signals, termination_raises
