"""`anymps run --live`: a line in the terminal and a page, both kept up to date while the script runs."""

from __future__ import annotations

from anymps.commands.live._page import LivePage
from anymps.commands.live._terminal import Live
