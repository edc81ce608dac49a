"""Sessions of scripts that run in a process of their own and write nothing of the user's: for a plan, and for a fix."""

from __future__ import annotations

from anymps.commands.isolated._plan_session import PlanSession
from anymps.commands.isolated._proof_session import FACTS, Order, ProofSession, error_of

__all__ = ["FACTS", "Order", "PlanSession", "ProofSession", "error_of"]
