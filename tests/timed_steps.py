"""Recordings of steps whose calls have shapes and times, so that a Mac's time can be predicted."""

from __future__ import annotations

from anymps.record import Direction, Fate, Phase, Recording, RecordingBuilder, RecordingWriter, Wait
from recordings import META

SIDE = "float32[2048, 2048]"
MS = 1_000_000


class Steps:
    """Three steps of a training, to which each step adds calls one after the other."""

    def __init__(self, **meta: object) -> None:
        self.writer = RecordingWriter.in_memory({**META, **meta})
        self.builder = RecordingBuilder(self.writer)
        self.looks: list[list[float]] = []
        self.clock = 0
        self.line = self.builder.site("/home/me/project/train.py", 36, "main", "total += loss.item()")

    def product(self, number: int = 1, gap: int = 1000) -> None:
        """Products of matrices, each `gap` ns after the call before."""
        for _ in range(number):
            self.entry("aten::mm", gap, inputs=(SIDE, SIDE), outputs=(SIDE,))

    def small(self, number: int) -> None:
        """Calls with next to nothing to do."""
        for _ in range(number):
            self.entry("aten::relu", 1000, inputs=("float32[16]",), outputs=("float32[16]",))

    def item(self) -> None:
        """A value that is read back."""
        self.entry(
            "aten::_local_scalar_dense", 1000, wait=Wait.ITEM, direction=Direction.MPS_TO_CPU, moved_bytes=4,
            inputs=("float32[]",), site=self.line, phase=Phase.LOSS_READ,
        )  # fmt: skip

    def fallback(self, length: int) -> None:
        """An operator on the CPU, with the copies that are part of it."""
        start = self.clock + 1000
        self.entry(
            "aten::linalg_svd", 1000, length, fate=Fate.FALLBACK, wait=Wait.FALLBACK, moved_bytes=1 << 20,
            inputs=(SIDE,), outputs=(SIDE,), site=self.line,
        )  # fmt: skip
        end, self.clock = self.clock, start + 10
        self.entry("aten::copy_", 0, 100, fate=Fate.COPY, wait=Wait.COPY_TO_CPU, direction=Direction.MPS_TO_CPU)
        self.clock = end

    def batch(self, length: int) -> None:
        """A batch of the data loader."""
        self.entry("anymps::dataloader", 0, length, fate=Fate.MARK, phase=Phase.BATCH)

    def look(self, code: float, *, compute: float = 0.5, length: int = MS) -> None:
        """A look at the machine, `length` ns long: and its speeds."""
        self.looks.append([self.clock, self.clock + length, 0, code, compute])
        self.clock += length

    def end(self) -> None:
        """The end of a step."""
        self.builder.end_step(self.clock)

    def entry(self, name: str, gap: int, length: int = 500, **named: object) -> None:
        """A call of `length` ns, `gap` ns after the one before."""
        self.clock += gap
        self.builder.entry(name, start_ns=self.clock, duration_ns=length, **{"phase": Phase.FORWARD, **named})  # type: ignore[arg-type]
        self.clock += length

    def close(self) -> Recording:
        """The recording."""
        if self.looks:
            self.writer.set_meta("looks", self.looks)
        return self.builder.close()
