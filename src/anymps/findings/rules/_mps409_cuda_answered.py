"""MPS409 to MPS411: what `--cuda-as-mps` answered, what it refused as no Mac has it, and what `--alone` passed over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from anymps.findings._endings import ending_messages
from anymps.findings._loop import count_of, notes_by_line
from anymps.findings._model import Example, Finding, Rule, Severity, at
from anymps.findings.advice import EVERYWHERE, PREFER_MPS
from anymps.findings.edits import (
    Placed,
    Safety,
    asks_for_mps,
    change_at,
    chooses_device,
    chosen_by_name,
    is_seeded,
    place_at,
    portable,
    recorded_statements,
    tests_device,
)
from anymps.record import Noted, Recording, Site
from anymps.source import LineEdit, Place, build

_PORTABLE: Final = LineEdit(portable)
_MOST_USERS: Final = 5  # lines that a finding names beside its own

ANSWERED = Rule(
    id="MPS409",
    title="CUDA call that needs --cuda-as-mps",
    severity=Severity.WARNING,
    why="Only `--cuda-as-mps` lets this line use the Mac's GPU. Without it the line raises, or chooses the CPU.",
    fix=EVERYWHERE,
    related_as="used at",
    edit=_PORTABLE,
    safety=Safety.SAFE,
    project=LineEdit(chosen_by_name),
    source="torch/cuda/__init__.py (_lazy_init) and torch/accelerator/__init__.py, torch 2.7 to 2.15",
    example=Example(
        bad="x = torch.ones(3).cuda()",
        better={".cuda()": '.to("mps" if torch.backends.mps.is_available() else "cuda")'},
        cuda_as_mps=True,
    ),
)

REFUSED = Rule(
    id="MPS410",
    title="CUDA feature that mps does not have",
    refusal=True,
    why="It belongs to NVIDIA's hardware or libraries. `--cuda-as-mps` refuses it, because mps has no equivalent.",
    fix="Use the replacement that the finding names, or skip the call where `torch.cuda.is_available()` is False.",
    source="torch/cuda/graphs.py, nccl.py, memory.py, torch 2.7 to 2.15; developer.apple.com/metal/pytorch",
    example=Example(
        bad="graph = torch.cuda.CUDAGraph()",
        better={"graph = torch.cuda.CUDAGraph()": "x = torch.ones(3, device=device) * 2"},
        cuda_as_mps=True,
    ),
)

PASSED = Rule(
    id="MPS411",
    title="Process group that a Mac rejects",
    stops=True,
    why=(
        "NCCL belongs to NVIDIA, and gloo cannot send tensors on mps, so a Mac raises here. `--alone` skipped it, "
        "because one process has nothing to send."
    ),
    fix="Create a process group, and wrap the model for it, only if there is more than one process.",
    source="torch/distributed/distributed_c10d.py (Backend.backend_capability), torch 2.7 to 2.15",
    example=Example(
        bad="""
            torch.distributed.init_process_group("nccl")
            total = torch.ones(2, device=device).sum()
            torch.distributed.destroy_process_group()
        """,
        better={'torch.distributed.init_process_group("nccl")': 'torch.distributed.init_process_group("gloo")'},
        alone=True,
    ),
)


@dataclass(frozen=True)
class _Answered:
    """A line that mps answered; `asks` where it asks for CUDA itself, and does not take a device chosen elsewhere."""

    site: Site
    count: int
    place: Place | None
    asks: bool


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about lines of the program that asked for CUDA and were answered or refused."""
    yield from _answered(recording)
    uncaught = ending_messages(recording)
    for note in recording.noted("cuda_refused"):
        if _ended_a_process(str(note.facts.get("sentence", "")), uncaught):
            yield _finding_of_note(REFUSED, note, "refused")
    for note in recording.noted("passed_over"):
        yield _finding_of_note(PASSED, note, "passed over")


def _finding_of_note(rule: Rule, note: Noted, became: str) -> Finding:
    """A finding from the sentence that the device gave: what no Mac has, and what to use there."""
    what, _, instead = str(note.facts.get("sentence", "")).partition("; ")
    return rule.finding(
        note.occurrence.site,
        what=f"{what}, and was {became}.",
        count=note.occurrence.count,
        fix=f"{instead[:1].upper()}{instead[1:]}." if instead else "",
    )


def _ended_a_process(sentence: str, uncaught: Iterable[str]) -> bool:
    """Whether the refusal went uncaught, or the program gave up for want of the library that it names.

    A program that catches the exception has a way of its own: `try: import flash_attn` with `except ImportError`.
    """
    library = re.match(r"(\w+) ", sentence)
    named = re.compile(rf"\b{library[1]}\b") if library else None
    return any(sentence in message or (named is not None and named.search(message)) for message in uncaught)


def _answered(recording: Recording) -> Iterator[Finding]:
    """One for each line that must change; those that only use the device stand beside the line that chose it."""
    lines, portable_choice = [], False
    for notes in notes_by_line(recording.noted("cuda_answered")):
        site = notes[0].occurrence.site
        place = place_at(site)
        if place is not None and asks_for_mps(place):
            portable_choice = True
            continue
        if _ASKED_BY_TORCH.match(site.via) and "cuda" not in site.source.lower():
            continue  # nn.DataParallel(model), which hands all on to the model where there is no CUDA
        changes = change_at(Placed(_PORTABLE, (site,), Safety.SAFE)) is not None
        asks = changes or ("cuda" in site.source.lower() and not (place is not None and tests_device(place)))
        lines.append(_Answered(site, count_of(notes), place, asks))
    asking = list(_by_statement(line for line in lines if line.asks))
    users = [line for line in lines if not line.asks]
    chooser = next((line for line in asking if line.place is not None and chooses_device(line.place)), None)
    first: dict[str, Finding] = {}  # of each file the one that tells how `device` is made
    for line in asking:
        finding = _asking(line, users if line is chooser else ())
        yield _shortened(finding, first.get(line.site.file))
        if finding.change is not None and finding.change.inserts:
            first.setdefault(line.site.file, finding)
    if users and chooser is None and not portable_choice:
        yield _using(users)


def _by_statement(lines: Iterable[_Answered]) -> Iterator[_Answered]:
    """One for each statement, at its first line that was answered: a call over several lines changes as a whole."""
    together: dict[tuple[str, int], _Answered] = {}
    for line in sorted(lines, key=lambda answered: answered.site.file_line):
        key = line.site.file, line.site.line if line.place is None else line.place.line
        first = together.setdefault(key, line)
        if first is not line:
            together[key] = replace(first, count=first.count + line.count)
    return iter(together.values())


def _asking(line: _Answered, users: Sequence[_Answered]) -> Finding:
    others = ""
    if users:
        others = " One other line uses its device." if len(users) == 1 else f" {len(users)} other lines use its device."
    seeds = line.place is not None and bool(_words_of(line.place) & _SEEDS)
    seeded = line.place is not None and is_seeded(line.place)
    return ANSWERED.finding(
        line.site,
        what=f"This line asks for CUDA, and mps answered.{others}",
        count=line.count + sum(user.count for user in users),
        why=_why(line.place),
        fix=_SEEDED[line.place.code.is_head] if line.place and seeded else _in_words(line.site.source),
        related_sites=[user.site for user in users[:_MOST_USERS]],
        written=_KEPT if users else _SEEDING if seeds else "Write `{new}`. Other machines behave as before.",
        severity=Severity.INFO if seeds or seeded else None,
    )


def _in_words(source: str) -> str:
    """What to do about a line for which no code can be built."""
    if _TYPED.search(source):
        return _MADE
    called = _CALLED.search(source)
    if called is not None:
        return f"Where mps is available, call `torch.{_INSTEAD[called[1]]}()` instead."
    return _MOVED if ".cuda(" in source else _WITHOUT_CODE


def _shortened(finding: Finding, before: Finding | None) -> Finding:
    """The finding without what the one before it has told already of the file: how its device is made."""
    change = finding.change
    if before is None or before.change is None or change is None or change.inserts != before.change.inserts:
        return finding
    names = " and ".join(f"`{insert.name}`" for insert in change.inserts)
    fix = f"Write `{change.code}`, with {names} as made for {at(before.site)}. Other machines behave as before."
    return replace(finding, fix=fix) if change.code else finding


def _using(users: Sequence[_Answered]) -> Finding:
    """About lines that take a device which was chosen as text: at that text, where the recording holds its line."""
    answered = "1 line uses it" if len(users) == 1 else f"{len(users)} lines use it"
    answered += ", and mps answered."
    used = partial(
        ANSWERED.finding,
        count=sum(user.count for user in users),
        related_sites=[user.site for user in users[:_MOST_USERS]],
    )
    named = next((site for user in users for site in _named(user.site)), None)
    if named is not None:
        return used(named, what=f"This line names CUDA as the device; {answered}", written=_KEPT)
    typed = next((site for user in users for site in _types(user.site)), None)
    if typed is not None:
        what = f"This line names a type of CUDA's tensors, which mps has none of; {answered}"
        return used(typed, what=what, fix=_in_words(typed.source))
    first, *others = users
    lines = "This line uses a device" if not others else f"{len(users)} lines use a device"
    return used(
        first.site,
        what=f"{lines} that was chosen elsewhere as CUDA, and mps answered.",
        fix=_ELSEWHERE,
        related_sites=[user.site for user in others[:_MOST_USERS]],
        related_as="also at",
    )


_ASKED_BY_TORCH: Final = re.compile(r"torch/(?:nn/parallel/data_parallel|_utils)\.py:")
_ELSEWHERE: Final = f"{PREFER_MPS}, such as in an option's default. What uses the device can stay."
_KEPT: Final = "Write `{new}`. Other machines behave as before; the lines that use the device can stay."
_WITHOUT_CODE: Final = f"{PREFER_MPS}, and keep CUDA-only code for machines with CUDA."
_MOVED: Final = (
    "Write `.to(device)` for `.cuda()`, with a `device` that is chosen once: mps where there is one, else CUDA."
)
_TYPED: Final = re.compile(r"\bcuda\.[A-Z]\w*Tensor\b")
_MADE: Final = (
    "Create it with a function that takes a device: `torch.empty(size, dtype=..., device=device)`, or "
    "`torch.tensor(...)` for values. mps has no float64."
)
_INSTEAD: Final = {
    "empty_cache": "mps.empty_cache", "reset_peak_memory_stats": "accelerator.reset_peak_memory_stats",
}  # fmt: skip
_CALLED: Final = re.compile(rf"\bcuda\.({'|'.join(_INSTEAD)})\(")
_SEEDING: Final = "Write `{new}`, which seeds every device."
_SEEDED: Final = (
    "Leave or delete it: `torch.manual_seed` has the same seed, and seeds mps and CUDA, too.",
    "Leave it: below it, CUDA gets the seed of `torch.manual_seed`, which seeds mps, too.",
)
"""Of a statement, and of the head of a block of such."""
_SEEDS: Final = frozenset({"manual_seed", "manual_seed_all"})
_SILENT: Final = frozenset({"autocast", "GradScaler", "empty_cache", *_SEEDS})
_ASKING: Final = frozenset(
    {
        "is_available", "device_count", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
        "memory_reserved",
    }
)  # fmt: skip
"""What torch answers with no or 0 where CUDA was never used."""
_WHY: Final = "Only `--cuda-as-mps` lets this line use the Mac's GPU. "


def _named(site: Site) -> Iterator[Site]:
    """The recorded lines of a file that name CUDA as a device."""
    for row, text in sorted(site.recorded.items()):
        if "cuda" in text:
            other = Site(site.file, row, "", text.strip(), recorded=site.recorded)
            place = place_at(other)
            if place is not None and build(LineEdit(chosen_by_name), place) is not None:
                yield other


def _types(site: Site) -> Iterator[Site]:
    """The recorded lines of a file that give a name to a type of CUDA's tensors: `T = torch.cuda.FloatTensor`."""
    for row, statement in recorded_statements(site):
        if isinstance(statement, ast.Assign) and _TYPED.search(source := ast.unparse(statement)):
            yield replace(site, line=row, source=site.recorded.get(row, source).strip(), around="", first=0)


def _why(place: Place | None) -> str:
    """What the line does on a Mac as it stands."""
    if place is None:
        return ""
    names = _words_of(place)
    if names & _SILENT:
        return "Only `--cuda-as-mps` makes it act on mps. Without it, this does nothing on a Mac."
    if chooses_device(place) and any(isinstance(node, ast.IfExp) for node in place.code.nodes):
        other = "" if "is_available" in names else ", or stops where it uses this device"
        return f"{_WHY}Without it the script chooses the CPU{other}."
    if _only_names(place):
        return f"{_WHY}Without it the script stops where it uses this device."
    if names & _ASKING and "current_device" not in names:
        return f"{_WHY}Without it the answer is no or 0, and the script does what it does on a CPU."
    return f"{_WHY}Without it the line raises{', if the script reaches it' if place.tests else ''}."


def _only_names(place: Place) -> bool:
    """Whether a statement gives a name a device, or an argument its default, and makes nothing there."""
    calls = (node for node in place.code.nodes if isinstance(node, ast.Call))
    return chooses_device(place) and all(
        place.names.meaning(call.func) in ("torch.device", "str") or getattr(call.func, "attr", "") == "format"
        for call in calls
    )


def _words_of(place: Place) -> set[str]:
    """The names and attributes of a statement."""
    return {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in place.code.nodes}
