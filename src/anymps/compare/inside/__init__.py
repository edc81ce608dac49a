"""What runs in the compared processes: it traces the calls of a script on one device."""

from __future__ import annotations

from anymps.compare.inside._draws import draw_on_cpu
from anymps.compare.inside._run import TracedRun
