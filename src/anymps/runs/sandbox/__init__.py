"""Keeps a planned script from writing: a layer over the file system, redirected functions, and a seal."""

from __future__ import annotations

from anymps.runs.sandbox._files import divert_files
from anymps.runs.sandbox._layer import Layer
from anymps.runs.sandbox._libraries import divert_libraries
from anymps.runs.sandbox._seal import DEVICES, seal
from anymps.runs.sandbox._supervisor import CHANNEL, SHARED, Supervisor
