"""Writes a recording from names: numbers operators, signatures, modules and sites, and packs the entries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from anymps._vocabulary import Direction, Fate, Flag, Phase, RefusalKind, Role, RoundKind, Wait
from anymps.record._recording import Recording
from anymps.record._writer import Numbered, RecordingWriter
from anymps.record.format import ALLOCATION, ENTRY
from anymps.source import quote_text


class RecordingBuilder:
    """A writer for sources that know names rather than numbers. Not for threads: one source, one builder.

    >>> builder = RecordingBuilder()
    >>> line = builder.site("train.py", 12, "main", "loss.backward()")
    >>> builder.entry("aten::mul.Tensor", start_ns=0, duration_ns=5_000, phase=Phase.BACKWARD, site=line)
    >>> builder.end_step(20_000)
    >>> builder.close().operators()[0].count
    1
    """

    def __init__(
        self, writer: RecordingWriter | None = None, meta: Mapping[str, object] | None = None, *, start_ns: int = 0
    ) -> None:
        """Write through `writer`, by default one in memory with `meta`. The first step starts at `start_ns`."""
        self._writer = writer or RecordingWriter.in_memory(meta)
        self._operators = Numbered(self._writer, "operators")
        self._signatures = Numbered(self._writer, "signatures")
        self._modules = Numbered(self._writer, "modules")
        self._sites = Numbered(self._writer, "sites")
        self._refusals = 0
        self._buffers = 0
        self._event = 0
        self._reserved = 0
        self._alive: dict[int, list[int]] = {}
        self._packed = bytearray()
        self._step = 0
        self._step_start = start_ns

    def site(self, file: str, line: int, function: str = "", source: str = "", via: str = "", *, text: str = "") -> int:
        """The number of a line of code; `text` is that of its file, of which the lines around it are kept."""
        return self._sites.number(file, line, function, source, via, *quote_text(text, line)[1:])

    def module(self, path: str, kind: str = "") -> int:
        """The number of a module by path and type; 0 for the empty path."""
        return self._modules.number(path, kind) if path or kind else 0

    def entry(
        self,
        operator: str,
        *,
        start_ns: int,
        duration_ns: int = 0,
        fate: Fate = Fate.NATIVE,
        phase: Phase = Phase.OTHER,
        site: int = 0,
        module: int = 0,
        wait: Wait = Wait.NONE,
        direction: Direction = Direction.NONE,
        flags: Flag | None = None,
        moved_bytes: int = 0,
        sequence: int = -1,
        thread: int = 0,
        inputs: Sequence[str] = (),
        outputs: Sequence[str] = (),
        form: Mapping[str, object] | None = None,
        delayed_us: int = 0,
        refusal: int = 0,
    ) -> None:
        """Add one call, in the step that is running.

        Texts of tensors look like `float32[2, 3]`, a form like `{"axes": [0], "layout": ["transposed"]}`.
        """
        signature = self._signature(operator, fate, inputs, outputs, form or {})
        self._packed += ENTRY.pack(
            start_ns, duration_ns, moved_bytes, sequence, signature, module, site, self._step, thread,
            phase, wait, direction, flags or 0, refusal, delayed_us,
        )  # fmt: skip

    def note(
        self, what: str, *, start_ns: int, site: int = 0, other: int = 0, module: int = 0,
        phase: Phase = Phase.OTHER, moved_bytes: int = 0, **facts: object,
    ) -> None:  # fmt: skip
        """Add a mark of something that is no operator, with its facts, at a line; `other` is a line belonging to it."""
        self.entry(
            f"anymps::{what} {json.dumps(facts, sort_keys=True)}", start_ns=start_ns, fate=Fate.MARK, phase=phase,
            site=site, module=module, flags=Flag.PAIR, sequence=other, moved_bytes=moved_bytes,
        )  # fmt: skip

    def refusal(
        self,
        kind: RefusalKind,
        error: str,
        message: str,
        *,
        operator: str,
        start_ns: int,
        site: int = 0,
        origin: int = 0,
        detail: Mapping[str, object] | None = None,
    ) -> None:
        """Add a refused call: its entry and what was refused. `error` is the exception's class name."""
        self._refusals += 1
        fate = Fate.MISSING if kind is RefusalKind.MISSING else Fate.REFUSED
        self.entry(operator, start_ns=start_ns, fate=fate, site=site, flags=Flag.RAISED, refusal=self._refusals)
        self._writer.add("refusals", [(self._refusals, 0, kind.value, error, message, site, origin, detail or {})])

    def memory(self, time_ns: int, allocated_bytes: int, driver_bytes: int) -> None:
        """Add one moment of the device's memory: a buffer that fills it to `allocated_bytes` and goes at once."""
        buffer = self.allocation(
            allocated_bytes, time_ns=time_ns, allocated=allocated_bytes, reserved=driver_bytes, phase=Phase.FORWARD
        )
        self.free(buffer, time_ns=time_ns, phase=Phase.FORWARD)

    def allocation(
        self,
        size: int,
        operator: str = "",
        *,
        time_ns: int = 0,
        requested: int | None = None,
        allocated: int | None = None,
        reserved: int | None = None,
        phase: Phase = Phase.OTHER,
        site: int = 0,
        module: int = 0,
        role: Role = Role.NONE,
    ) -> int:
        """Add a buffer of `size` bytes, born in the step that is running, and give its number for `free`.

        The device then has `allocated` bytes in buffers, by default those that are not freed, and `reserved` in heaps,
        by default as many or as before.
        """
        self._buffers += 1
        self._event += 1
        held = sum(row[5] for row in self._alive.values()) + size if allocated is None else allocated
        self._reserved = max(self._reserved, held) if reserved is None else reserved
        signature = self._signature(operator, Fate.NATIVE, (), ()) if operator else 0
        self._alive[self._buffers] = [
            self._buffers, self._event, 0, time_ns, time_ns, size, size if requested is None else requested, held,
            self._reserved, signature, module, site, self._step, self._step, phase, phase, role,
        ]  # fmt: skip
        return self._buffers

    def free(self, buffer: int, *, time_ns: int = 0, phase: Phase = Phase.OTHER) -> None:
        """Free a buffer in the step that is running."""
        self._event += 1
        row = self._alive.pop(buffer)
        row[2], row[4], row[13], row[15] = self._event, time_ns, self._step, phase
        self._writer.spool(ALLOCATION.pack(*row), ALLOCATION)

    def round(self, kind: RoundKind, *, start_ns: int, end_ns: int, site: int = 0, key: int = 0) -> None:
        """Add what a loop does once a round; with one of them, steps follow from these alone (see `_rounds.py`)."""
        self._writer.add("rounds", [(kind, key, site, start_ns, end_ns)])

    def end_step(self, end_ns: int) -> None:
        """End the running step; the next one starts at once."""
        self._writer.add("steps", [(self._step, self._step_start, end_ns)])
        self._step += 1
        self._step_start = end_ns

    def flush(self) -> None:
        """Hand the packed entries over and make all of it survive a kill."""
        self._writer.spool(bytes(self._packed))
        self._packed.clear()
        self._writer.commit()

    def close(self) -> Recording:
        """End the recording and open it for reading."""
        self.flush()
        self._writer.spool(b"".join(ALLOCATION.pack(*row) for row in self._alive.values()), ALLOCATION)
        self._writer.close()
        return self._writer.recording()

    def _signature(
        self,
        operator: str,
        fate: Fate,
        inputs: Sequence[str],
        outputs: Sequence[str],
        form: Mapping[str, object] | None = None,
    ) -> int:
        texts = map(json.dumps, (list(inputs), list(outputs)))
        whole_form = json.dumps(dict(form or {}), sort_keys=True)
        return self._signatures.number(self._operators.number(operator), int(fate), *texts, whole_form)
