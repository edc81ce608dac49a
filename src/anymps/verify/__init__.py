"""What a Mac answers to a list of calls, and where the virtual device parts from it."""

from __future__ import annotations
