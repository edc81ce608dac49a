"""A plan as a document, and as JSON."""

from __future__ import annotations

from anymps.report.plan._document import plan_document
from anymps.report.plan._json import plan_json
