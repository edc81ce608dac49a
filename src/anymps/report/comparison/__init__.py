"""A comparison of one script on two devices, as a document and as JSON."""

from __future__ import annotations

from anymps.report.comparison._document import comparison_document
from anymps.report.comparison._json import comparison_json
