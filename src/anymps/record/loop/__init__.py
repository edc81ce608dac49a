"""Which optimizers of a loop take turns, and so what one round of it is: of a recording, and while a program runs."""

from __future__ import annotations

from anymps.record.loop._rounds import Round, Rounds, cycles
