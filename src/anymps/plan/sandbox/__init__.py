"""Keeps a planned script from writing: a layer over the file system, redirected functions, and a seal."""

from __future__ import annotations

from anymps.plan.sandbox._files import divert_files
from anymps.plan.sandbox._layer import Layer
from anymps.plan.sandbox._libraries import divert_libraries
from anymps.plan.sandbox._seal import DEVICES, seal
from anymps.plan.sandbox._supervisor import CHANNEL, SHARED, Supervisor
