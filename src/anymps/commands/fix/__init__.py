"""`anymps fix`: runs of a script before and after changes, and the patch that they prove safe."""

from __future__ import annotations

from anymps.commands.fix._command import fix
