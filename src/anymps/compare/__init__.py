"""Two runs of one script on two devices: traces of their calls, which calls match, and where and why they diverge."""

from __future__ import annotations

from anymps.compare._align import Pair, aligned
from anymps.compare._comparison import Comparison, LossPair, Side, compare_traces
from anymps.compare._divergences import Cause, Divergence, Rounding, Shared
from anymps.compare._trace import Bound, Ending, Lists, Read, Sketch, Trace, TracedCall, Value, places
from anymps.compare._traced import Ran, Traced, trace_run
