"""`anymps bench`: a function, a script's steps, or, with `--calibrate`, the Mac itself, timed."""

from __future__ import annotations

from anymps.commands.bench._command import bench
