"""`anymps bench`: a function, or a script's steps, timed."""

from __future__ import annotations

from anymps.commands.bench._command import bench
