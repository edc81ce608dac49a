"""What `anymps fix` does right now, and about how long that will take."""

from __future__ import annotations

__all__ = ["Progress"]

from dataclasses import dataclass

from anymps.commands._show import say


@dataclass
class Progress:
    """Numbers the runs: `run 2 of 3, about 30 s: with 4 changes`."""

    planned: int = 3
    number: int = 0

    def run(self, what: str, seconds: float = 0.0) -> None:
        """A run begins; `seconds` is how long it may take, 0 if nobody knows."""
        self.number += 1
        of = f" of {self.planned}" if self.number <= self.planned else ""
        about = f", about {max(1, round(seconds))} s" if seconds else ""
        say(f"run {self.number}{of}{about}: {what}")
