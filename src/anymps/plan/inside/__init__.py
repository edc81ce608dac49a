"""Inside of the process that a plan measures: its scenario made true, and large tensors without values. Needs torch."""

from __future__ import annotations

from anymps.plan.inside._apply import apply
from anymps.plan.inside._hollow import Hollow
