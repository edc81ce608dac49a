"""Macs: the chips that were sold, their memory sizes, rates and Metal limits. Imports no torch."""

from __future__ import annotations

from anymps.mac._mac import DEFAULT_MACOS, Mac, all_macs
from anymps.mac._parse import DEFAULT_MAC, parse_mac, parse_memory
