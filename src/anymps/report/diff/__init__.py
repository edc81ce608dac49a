"""What changed between two recordings, as a document."""

from __future__ import annotations

from anymps.report.diff._compare import Diff, compare
from anymps.report.diff._document import diff_document
