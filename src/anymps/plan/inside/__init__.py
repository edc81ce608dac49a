"""Runs inside the measured process: applies the scenario, and makes large tensors without values. Needs torch."""

from __future__ import annotations

from anymps.plan.inside._apply import apply
from anymps.plan.inside._hollow import Hollow
