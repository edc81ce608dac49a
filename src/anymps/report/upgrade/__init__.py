"""Which torch and which macOS a script can use, as a document and as JSON."""

from __future__ import annotations

from anymps.report.upgrade._document import upgrade_document
from anymps.report.upgrade._json import upgrade_json
