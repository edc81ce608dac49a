"""What happens in the process of a run: its session, and what keeps the script from writing the user's files."""

from __future__ import annotations

from anymps.runs.inside._endings import OF_ANYMPS, error_of, trail_of, watch_losses
from anymps.runs.inside._isolation import DIVERT_AGAIN, divert_writes
from anymps.runs.inside._loops import StepsDone
from anymps.runs.inside._session import OrderSession
