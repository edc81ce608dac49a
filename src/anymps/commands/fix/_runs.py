"""Runs a script in separate processes for `anymps fix`, and reads the results."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anymps._errors import UsageError
from anymps._own_process import own_command
from anymps._text import last_line
from anymps.cleanup import PrivateFolder
from anymps.commands._judge import Judge
from anymps.commands._show import say
from anymps.commands.isolated import FACTS, FILES, Order
from anymps.findings import Finding
from anymps.plan import end_all, run_isolated
from anymps.record import Recording, Site

if TYPE_CHECKING:
    from anymps.fix import How, Program, Ran

_TRACEBACK = "Traceback (most recent call last):"
# What Python prints of an exception that ends nothing, such as one of a `__del__` at the end.
_IGNORED = re.compile(
    r"^Exception ignored.*\nTraceback \(most recent call last\):\n(?:[ \t].*\n)*(?:\S.*\n?)?", re.MULTILINE
)
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_LONGEST_TEXT = 1 << 22  # bytes of a written file that is compared


@dataclass
class Runs:
    """Runs `words`, a script and its arguments, each time in a process of its own, for at most `seconds`.

    Each run is told: `run 2 of 3, about 30 s: the changed script on mps`.
    """

    words: tuple[str, ...]
    order: Order
    seconds: float
    planned: int = 3
    spent: list[float] = field(default_factory=list)

    def first(self, program: Program, answered: bool) -> tuple[Ran, tuple[Finding, ...]]:
        """The run of the unchanged script with a recording, and its findings.

        Raises UsageError, in one line, where the run could not start or did not end in time.
        """
        self._tell("the unchanged script")
        asked = replace(self.order.asked, cuda_as_mps=answered or None)
        order = replace(self.order, asked=asked)
        with PrivateFolder("anymps-fix-") as folder:
            ran = self._run(folder, program, order, self.words, self.seconds)
            self.spent.append(ran.seconds)
            if ran.cut:
                raise UsageError(
                    f"the script did not end within {self.seconds:g} s: shorten it, such as with --steps 10, or "
                    "allow more --seconds"
                )
            if not (folder / "recording").exists():
                raise UsageError(f"the script could not be run: {ran.error}")
            with Recording.open(folder / "recording") as opened:
                return ran, tuple(Judge(program.main.path).judge(opened).findings)

    def run(self, orders: Sequence[tuple[Program, How]]) -> list[Ran]:
        """Run texts of the program at the same time, with the same seeds, and read what each did.

        A run that uses more of the processor than its seconds is ended, and what it has done by then is reported.
        """
        began = time.monotonic()
        self._tell(" and ".join(how.what for _, how in orders))
        with ThreadPoolExecutor(len(orders)) as pool:
            running = [pool.submit(self._one, *order) for order in orders]
            try:
                found = [each.result() for each in running]
            except BaseException:
                end_all()
                raise
        self.spent.append(time.monotonic() - began)
        return found

    def _one(self, program: Program, how: How) -> Ran:
        asked = replace(self.order.asked, cuda_as_mps=how.answered or None)
        order = replace(self.order, asked=asked, recorded=False, device=how.device, draws_on_cpu=how.draws_on_cpu)
        order = replace(order, steps=how.steps)
        with PrivateFolder("anymps-fix-") as folder:
            words = (*self.words, *how.added)
            return self._run(folder, program, order, words, min(how.seconds, self.seconds), patient=True)

    def _tell(self, what: str) -> None:
        number = len(self.spent) + 1
        of = f" of {self.planned}" if number <= self.planned else ""
        say(f"run {number}{of}: {what}")

    def _run(
        self,
        folder: Path,
        program: Program,
        order: Order,
        words: tuple[str, ...],
        seconds: float,
        patient: bool = False,
    ) -> Ran:
        from anymps.fix import Ran, new_statements, numbers

        changed = {}
        for number, (path, script) in enumerate(program.changed.items()):
            text = folder / f"text{number}.py"
            text.write_bytes(script.data)
            changed[str(path)] = str(text)
        watch = {str(new.path.resolve()): new_statements(old.text, new.text) for old, new in program.differences()}
        order = replace(order, folder=str(folder), changed=changed, watch=watch)
        command = own_command("fix", "--prove", order.to_json(), *words)
        began = time.monotonic()
        with (folder / "output").open("wb") as out, (folder / "errors").open("wb") as error:
            status = run_isolated(command, out, seconds, error, patient=patient)
        took = time.monotonic() - began
        printed, errors = (
            (folder / name).read_text(encoding="utf-8", errors="replace") for name in ("output", "errors")
        )
        facts: dict[str, Any] = {}
        if (folder / FACTS).exists():
            facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        why = str(facts.get("error", "")) or (f"exit status {status}" if facts and status else "")
        why = "" if status is None else why if facts else last_line(errors)
        trail = ((str(file), int(line)) for file, line in facts.get("trail", ()))
        return Ran(
            error=why,
            losses=tuple(map(float, facts.get("losses", ()))),
            printed=numbers(printed),
            files=_written(folder / FILES, set(changed), {new.data: old.data for old, new in program.differences()}),
            trail=tuple((file, line) for file, line in trail if program.owns(Site(file, line))),
            worker=_of_worker(errors) if why else "",
            reached=frozenset((str(file), int(line)) for file, line in facts.get("reached", ())),
            seconds=took,
            places=tuple(facts.get("places", ())),
            modules=tuple(facts.get("modules", ())),
            used=bool(facts.get("used")),
            early=(order.steps or 0) if facts.get("early") else 0,
            cut=status is None,
        )


def _written(folder: Path, sources: set[str], unchanged: Mapping[bytes, bytes]) -> dict[str, str | None]:
    """What the script wrote, by its path without numbers of one run; None for what is no text, or is very long.

    Scripts keep copies of their sources beside their results: `unchanged` has what a changed source was.
    """
    from anymps.fix import comparable

    found: dict[str, str | None] = {}
    for path in sorted(folder.rglob("*")):
        place = f"/{path.relative_to(folder).as_posix()}"
        if place in sources or path.is_symlink() or not path.is_file() or path.suffix == ".pyc":
            continue
        name = comparable(_shown(place))
        try:
            data = path.read_bytes() if path.stat().st_size <= _LONGEST_TEXT else b"\0"
            data = unchanged.get(data, data)
            text = None if b"\0" in data else data.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            text = None
        before = found.get(name, "")
        found[name] = None if text is None or before is None else before + text
    return found


def _shown(place: str) -> str:
    """A path as seen from the current folder, if it lies there."""
    here = Path.cwd().resolve()
    return Path(place).relative_to(here).as_posix() if Path(place).is_relative_to(here) else place


def _of_worker(errors: str) -> str:
    """The traceback of a process that the script started; the script's own, with what led to it, is the last."""
    blocks = _IGNORED.sub("", errors).split(_TRACEBACK)
    own = len(blocks) - 1
    while own > 1 and blocks[own - 1].rstrip().endswith(_CHAINED):
        own -= 1
    if own < 2:
        return ""
    lines = [_TRACEBACK]
    for line in blocks[1].splitlines()[1:]:
        lines.append(line)
        if line and not line[0].isspace():
            break  # the exception itself
    return "\n".join(lines)
