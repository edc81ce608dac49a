"""Checks edits by running the changed program: without a GPU, on mps, and with an option that asks for the CPU.

If a run contradicts the edits, the patch is cut back: first to those that mean the same everywhere, then to those of
them that choose no device, which need no check.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from anymps._text import listed
from anymps.findings.edits import Safety
from anymps.fix._comparison import Ran, agreement, difference, stops_short
from anymps.fix._edits import Edit, Suggestion, apply_all
from anymps.fix._program import Program
from anymps.source import new_line, rows_at, tree_of

RUNS: Final = 3.2
"""All runs may take this many times as long as that of the unchanged script."""
_LEAST_S: Final = 60.0
_SHORT_S: Final = 20.0  # of a run of the first steps
_STEPS: Final = 5
_ONLY_MPS: Final = re.compile(r"\w+\.backends\.mps\.is_available\(\)")
_BRANCHES: Final = 3  # lines below the head: one statement for mps, `else:` and what stood there before
_DEVICE_WORD: Final = re.compile(r"""cuda|mps|device|accelerator|autocast|(?<=["'])cpu(?=["'])""")


@dataclass(frozen=True)
class How:
    """How to run a program: `what` in words, on `device` (mps, or cpu for a machine without a GPU).

    `answered`: mps answers for CUDA. `added` are words for its command line, `steps` and `seconds` its limits.
    `draws_on_cpu`: mps has the random numbers of the CPU.
    """

    what: str
    device: Literal["mps", "cpu"] = "mps"
    answered: bool = False
    added: tuple[str, ...] = ()
    steps: int | None = None
    seconds: float = _LEAST_S
    draws_on_cpu: bool = False


Task = tuple[Program, How]

Run = Callable[[Sequence[Task]], list[Ran]]
"""Runs programs at the same time."""


def check(
    program: Program,
    edits: Sequence[Edit],
    before: Ran,
    run: Run,
    *,
    answered: bool = False,
    steps: int | None = None,
    option: tuple[str, ...] = (),
) -> Checked:
    """Keep the edits of a program that no run contradicts.

    `before` is the run of the unchanged program, with mps in place of CUDA if `answered`: then it runs once more as a
    Mac would run it. `steps` is the limit of each run. `option` is what asks the program for the CPU. A short run goes
    beside another where it does not depend on it.
    """
    checked = Checked(program, before, run, answered, steps, option, list(edits), before)
    safe = [edit for edit in edits if _is_safe(edit)]
    sure = [edit for edit in safe if not checked.chooses_device([edit])]
    for compare in (checked.without_gpu, checked.on_mps):
        while checked.kept != sure and (why := compare()):
            fewer = [edit for edit in checked.kept if edit in safe]
            checked.keep(fewer if len(fewer) < len(checked.kept) and checked.has_time else sure, why)
    checked.program = apply_all(checked.kept, program)
    return checked


@dataclass
class Checked:
    """The program with the edits that are kept, and why the others are not.

    `unchanged` is what a Mac makes of the script as it stands, `after` the run with the edits on mps, None if there was
    none. `notes` say what agrees.
    """

    program: Program
    _before: Ran
    _run: Run
    _answered: bool
    _steps: int | None
    _option: tuple[str, ...]
    kept: list[Edit]
    unchanged: Ran
    after: Ran | None = None
    notes: list[str] = field(default_factory=list)
    left: list[Suggestion] = field(default_factory=list)
    _on_cpu: Ran | None = None  # what the unchanged script does without a GPU

    def __post_init__(self) -> None:
        self._seconds_left = max(RUNS * self._before.seconds, _LEAST_S) - self._before.seconds

    def without_gpu(self) -> str:
        """What differs in the first steps where there is no GPU: no edit should change anything there."""
        seconds = max(0.6 * self._before.seconds, _SHORT_S)
        steps = min(self._steps or _STEPS, _STEPS)
        how = How("the first steps without a GPU", "cpu", steps=steps, seconds=seconds)
        tasks = [(apply_all(self.kept, self.program), how)]
        if self._answered and self._on_cpu is None:
            seconds = max(self._before.seconds, _SHORT_S)
            alone = How("the unchanged script without --cuda-as-mps", steps=self._steps, seconds=seconds)
            tasks.append((self.program, alone))
        after, *rest = self._ran(*tasks)
        self.unchanged = rest[0] if rest else self.unchanged
        before = self._on_cpu or self.unchanged
        why = _against(before, after)
        if before is self.unchanged and before.used and (why or before.error):
            # On mps it has other random numbers, or raises what it raises nowhere else.
            (before,) = self._ran((self.program, replace(how, what="the same of the unchanged script")))
            why = _against(before, after)
        self._on_cpu = before
        if why:
            return f"without a GPU {why}"
        ended = f"the script stops as before{after.place}" if after.error else "the script runs"
        self.notes.append(f"without a GPU, {agreement(before, after) or ended}")
        return ""

    def on_mps(self) -> str:
        """What differs in the whole run on mps from that of the unchanged program as a Mac runs it.

        Beside it, one step with the option that asks for the CPU, which the changed program has to obey.
        """
        changed, unchanged = apply_all(self.kept, self.program), self.unchanged
        # Where a Mac ran it on the CPU, the losses can be the same only if the random numbers are.
        on_cpu = not unchanged.used and bool(unchanged.losses or not unchanged.error)
        seconds = max(self._before.seconds, self._seconds_left, _LEAST_S)
        how = How("the changed script on mps", steps=self._steps, seconds=seconds, draws_on_cpu=on_cpu)
        tasks = [(changed, how)]
        if self._option and self.chooses_device(self.kept):
            tasks.append((changed, How(f"one step with {' '.join(self._option)}", added=self._option, steps=1)))
        after, *with_option = self._ran(*tasks)
        why, before = self._against_mac(after, on_cpu=on_cpu)
        if why:
            return f"on mps {why}"
        self.after = after
        if agreed := agreement(before, after):
            self.notes.append(f"on mps, {agreed}")
        self._leave_unreached(changed, after)
        if with_option:
            self._obeys(with_option[0])
        return ""

    def _against_mac(self, after: Ran, *, on_cpu: bool) -> tuple[str, Ran]:
        """What speaks against a changed run on mps, and the run that it was compared with."""
        unchanged = self.unchanged
        why = _against(unchanged, after, self._before if self._answered else None)
        if not why and unchanged.used and not after.used:
            why = "nothing is on mps any more"
        if not why and self._answered and not on_cpu and not unchanged.used:
            # A Mac computes nothing that could be compared.
            return difference(self._before, after), self._before
        return why, unchanged

    def _obeys(self, after: Ran) -> None:
        """Whether the changed program keeps to the CPU where it is asked to, if the unchanged one does."""
        name = " ".join(self._option)
        if after.used:
            how = How(f"the unchanged script with {name}", answered=self._answered, added=self._option, steps=1)
            (before,) = self._ran((self.program, how))
            stopped_at_edit = any((str(edit.file), edit.line) in before.trail for edit in self.kept)
            if before.used or stopped_at_edit:
                return  # it has another meaning, such as CUDA_VISIBLE_DEVICES
            others = [edit for edit in self.kept if not self.chooses_device([edit])]
            self.keep(others, f"with {name} it still uses mps")
            self.after = None
        elif after.error:
            self.notes.append(f"with {name}, the changed script stops {after.stopped}")
        else:
            self.notes.append(f"with {name}, the script stays on the CPU")

    def chooses_device(self, edits: Sequence[Edit]) -> bool:
        """Whether edits say otherwise where something runs."""
        return _names_device(apply_all(edits, self.program))

    @property
    def has_time(self) -> bool:
        """Whether there is time for another whole run."""
        return self._seconds_left >= self._before.seconds

    def keep(self, fewer: Sequence[Edit], why: str) -> None:
        """Keep fewer edits; the others are left for a reason."""
        left = sorted((edit for edit in self.kept if edit not in fewer), key=lambda edit: (edit.file, edit.line))
        self.left += [Suggestion(edit.finding, why) for edit in left]
        self.kept = [edit for edit in self.kept if edit in fewer]
        if left and not self.chooses_device(self.kept):
            self.notes.clear()  # they tell of a program that runs elsewhere

    def _leave_unreached(self, changed: Program, after: Ran) -> None:
        """Of the edits that choose a device and to which the run on mps did not come, keep and tell the safe ones.

        Those that stand below a question about CUDA that no edit changes are left: no Mac comes there.
        """
        edited = {(edit.file, edit.line) for edit in self.kept}
        unreached = [
            edit
            for edit in self.kept
            if self.chooses_device([edit]) and not _came_to(edit, self.program, changed, after)
        ]
        along = [edit for edit in unreached if _is_safe(edit) and not _is_below_cuda(edit, self.program, edited)]
        self.keep(
            [edit for edit in self.kept if edit in along or edit not in unreached],
            "the run on mps did not reach its line",
        )
        for file in dict.fromkeys(edit.file for edit in along):
            lines = [str(edit.line) for edit in reversed(along) if edit.file == file]
            which = f"{'line' if len(lines) == 1 else 'lines'} {listed(lines)} of {file.name}"
            self.notes.append(f"the run on mps did not reach {which}")

    def _ran(self, *tasks: Task) -> list[Ran]:
        """Runs at the same time, with the lines at which they stopped as the program as it stands has them."""
        found = []
        for (program, _), ran in zip(tasks, self._run(tasks), strict=True):
            trail = tuple((file, line_between(program, self.program, file, line)) for file, line in ran.trail)
            found.append(replace(ran, trail=trail))
        self._seconds_left -= max(ran.seconds for ran in found)
        return found


def _against(before: Ran, after: Ran, answered: Ran | None = None) -> str:
    """How a run after the edits contradicts the run before them; empty if it does not."""
    if stops_short(before, after):
        return f"the script stops {after.stopped}"
    if (before.cut or after.cut) and not (before.losses and after.losses):
        return "no loss was computed in time"
    return difference(before, after, answered)


def _came_to(edit: Edit, program: Program, changed: Program, ran: Ran) -> bool:
    """Whether a run of the changed program came to the statement of an edit."""
    text = changed.script(edit.file).text
    line = line_between(program, changed, str(edit.file), edit.line)
    first, last = _with_branches(text, rows_at(tree_of(text), line))
    return any(file == str(edit.file) and first <= at <= last for file, at in ran.reached)


def _is_below_cuda(edit: Edit, program: Program, edited: Collection[tuple[Path, int]]) -> bool:
    """Whether a statement is entered only where CUDA is, by a test that is none of the `edited` lines."""
    place = program.script(edit.file).place(edit.line)
    tests = place.tests if place is not None else ()
    return any("cuda.is_available" in ast.unparse(test) and (edit.file, test.lineno) not in edited for test in tests)


def _with_branches(text: str, lines: tuple[int, int]) -> tuple[int, int]:
    """The lines of a statement; of one in a branch of an edit, `if torch.backends.mps.is_available():`, all of it."""
    first, last = lines
    for node in ast.walk(tree_of(text)):
        if isinstance(node, ast.If) and node.orelse and _ONLY_MPS.fullmatch(ast.unparse(node.test)):
            end = node.end_lineno or node.lineno
            if node.lineno <= first and last <= end <= node.lineno + _BRANCHES:
                return node.lineno, end
    return lines


def line_between(one: Program, other: Program, file: str, line: int) -> int:
    """Where a line of a file of one program stands in the other one."""
    first, second = one.text_of(file), other.text_of(file)
    return line if first == second else new_line(first, second, line)


def _is_safe(edit: Edit) -> bool:
    """Whether its code means the same everywhere, by its rule."""
    return edit.finding.edit is not None and edit.finding.edit.safety is Safety.SAFE


def _names_device(changed: Program) -> bool:
    """Whether a change says otherwise where something runs: by the words for it, which differ in number."""
    words = ((Counter(_DEVICE_WORD.findall(script.text)) for script in both) for both in changed.differences())
    return any(before != after for before, after in words)
