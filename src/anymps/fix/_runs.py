"""Runs a program before and after edits, and reads what each run did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from anymps._errors import UsageError
from anymps._text import last_line
from anymps.findings import Finding
from anymps.fix._check import How, Task
from anymps.fix._comparison import Ran, comparable, numbers
from anymps.fix._program import Program
from anymps.fix._proof import Proof
from anymps.record import Recording, Site
from anymps.runs import Answer, Order, run, together

_LONGEST_TEXT = 1 << 22  # bytes of a written file that is compared


@dataclass
class Runs:
    """Runs of a script as `order` says it, each in a process of its own that may take the order's seconds.

    Each is told: `run 2: the changed script on mps`. How many there will be depends on what they show.
    """

    order: Order
    say: Callable[[str], None]
    spent: list[float] = field(default_factory=list)

    def first(
        self, program: Program, answered: bool, judge: Callable[[Recording], Iterable[Finding]]
    ) -> tuple[Ran, tuple[Finding, ...]]:
        """The run of the unchanged script with a recording, and the findings of `judge` in it.

        Raises UsageError, in one line, where the run could not start or did not end in time.
        """
        self._tell("the unchanged script")
        with run(self._ordered(program, How("", answered=answered, steps=self.order.steps), recorded=True)) as answer:
            ran = _read(answer, program, self.order.steps)
            self.spent.append(ran.seconds)
            if ran.cut:
                raise UsageError(
                    f"the script did not end within {self.order.seconds:g} s: shorten it, such as with --steps 10, or "
                    "allow more --seconds"
                )
            if not answer.recording.exists():
                raise UsageError(f"the script could not be run: {ran.error}")
            with Recording.open(answer.recording) as opened:
                return ran, tuple(judge(opened))

    def run(self, tasks: Sequence[Task]) -> list[Ran]:
        """Run texts of the program at the same time, with the same seeds, and read what each did.

        A run that uses more of the processor than its seconds is ended, and what it has done by then is reported.
        """
        began = time.monotonic()
        self._tell(" and ".join(how.what for _, how in tasks))
        found = together([partial(self._one, *task) for task in tasks])
        self.spent.append(time.monotonic() - began)
        return found

    def _one(self, program: Program, how: How) -> Ran:
        order = self._ordered(program, how)
        with run(replace(order, seconds=min(how.seconds, order.seconds), patient=True)) as answer:
            return _read(answer, program, how.steps)

    def _ordered(self, program: Program, how: How, recorded: bool = False) -> Order:
        return replace(
            self.order,
            words=(*self.order.words, *how.added),
            on=how.device,
            device=replace(self.order.device, cuda_as_mps=how.answered or None),
            recorded=recorded,
            children=True,
            observer=Proof([str(path) for path in program.changed], how.draws_on_cpu),
            steps=how.steps,
            sources={str(path): script.data for path, script in program.changed.items()},
        )

    def _tell(self, what: str) -> None:
        self.say(f"run {len(self.spent) + 1}: {what}")


def _read(answer: Answer, program: Program, steps: int | None) -> Ran:
    noted, status = answer.noted, answer.status
    why = str(noted.get("error", "")) or (f"exit status {status}" if noted and status else "")
    why = "" if status is None else why if noted else last_line(answer.errors)
    trail = ((str(file), int(line)) for file, line in noted.get("trail", ()))
    unchanged = {new.data: old.data for old, new in program.differences()}
    return Ran(
        error=why,
        losses=tuple(map(float, noted.get("losses", ()))),
        printed=numbers(answer.output),
        files=_written(answer.files, set(map(str, program.changed)), unchanged),
        trail=tuple((file, line) for file, line in trail if program.owns(Site(file, line))),
        reached=frozenset((str(file), int(line)) for file, line in noted.get("reached", ())),
        seconds=answer.seconds,
        modules=tuple(noted.get("modules", ())),
        used=bool(noted.get("used")),
        early=(steps or 0) if noted.get("early") else 0,
        cut=status is None,
    )


def _written(folder: Path, sources: set[str], unchanged: Mapping[bytes, bytes]) -> dict[str, str | None]:
    """What the script wrote, by its path without numbers of one run; None for what is no text, or is very long.

    Scripts keep copies of their sources beside their results: `unchanged` has what a changed source was.
    """
    found: dict[str, str | None] = {}
    here = f"{Path.cwd().resolve().as_posix()}/"
    for path in sorted(folder.rglob("*")):
        place = f"/{path.relative_to(folder).as_posix()}"
        if place in sources or path.is_symlink() or not path.is_file() or path.suffix == ".pyc":
            continue
        name = comparable(place.removeprefix(here))
        try:
            data = path.read_bytes() if path.stat().st_size <= _LONGEST_TEXT else b"\0"
            data = unchanged.get(data, data)
            text = None if b"\0" in data else data.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            text = None
        before = found.get(name, "")
        found[name] = None if text is None or before is None else before + text
    return found
