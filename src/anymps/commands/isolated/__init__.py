"""Sessions of scripts that run in a separate process and write none of the user's files: plan, fix and compare."""

from __future__ import annotations

from anymps.commands.isolated._isolation import FILES
from anymps.commands.isolated._plan_session import PlanSession
from anymps.commands.isolated._proof_session import FACTS, Order, ProofSession, error_of
from anymps.commands.isolated._trace_session import TRACE, TraceOrder, TraceSession
