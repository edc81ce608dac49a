"""Runs of a user's script in a process of its own: what is ordered, the process with its limits, and what is left."""

from __future__ import annotations

from anymps.runs._order import Observer, Order
from anymps.runs._process import Answer, Runner, processor_limits, run, together, undisturbed
