"""MPS408: indices that lie on the CPU, while the tensor that they index is on mps."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from anymps.findings._costs import COPY
from anymps.findings._loop import AtLine, by_line, is_every_step, is_library, loops_untrained, some_steps, times
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings.advice import WAITS, UserLine, index_on_device
from anymps.record import Occurrence, Recording, Wait
from anymps.record.format import Picked

INDEX = Rule(
    id="MPS408",
    title="CPU index into a tensor on mps, repeatedly",
    severity=Severity.WARNING,
    about_copies=True,
    why=(
        f"PyTorch copies a CPU index to the tensor's device each time it is used, and for that copy the host {WAITS}."
    ),
    fix=index_on_device(),
    source=f"aten/src/ATen/native/TensorAdvancedIndexingUtils.h (make_info), torch 2.7 to 2.15; {COPY.source}",
    example=Example(
        bad="""
            data = torch.rand(8, 4).to(device)
            order = torch.randperm(8)
            for i in range(4):
                x = data[order[2 * i : 2 * i + 2]]
                train(x)
        """,
        better={"order = torch.randperm(8)": "order = torch.randperm(8, device=device)"},
    ),
)

_CPU_INDICES: Final = Picked(
    of="o.name IN ('aten::index.Tensor', 'aten::index.Tensor_out', 'aten::_index_put_impl_') "
    "AND instr(replace(s.inputs, '[] on cpu', ''), ' on cpu')"
)
"""What was indexed with CPU tensors; a value of no dimension that is assigned is none."""


_INDEXING: Final = Picked(of="o.name = 'aten::index.Tensor' AND NOT instr(s.inputs, ' on cpu')")


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about indices, one a line of the program."""
    yield from _found(recording, recording.occurrences(_CPU_INDICES), "on the CPU")
    # A list and an array become a tensor on the way: all that the line copies, where nothing else on it does.
    indexing = {use.site.file_line for use in recording.occurrences(_INDEXING)}
    copies = [wait for wait in recording.waits() if wait.wait is Wait.COPY_TO_MPS and wait.site.file_line in indexing]
    yield from _found(recording, (copy for copy in copies if _only_indexes(copy.site.source)), "a list or an array")


def _found(recording: Recording, uses: Iterable[Occurrence], kind: str) -> Iterator[Finding]:
    for line in by_line(use for use in uses if use.site.known and not is_library(use.site)):
        routine = tuple(use for use in line.occurrences if is_every_step(recording, use))
        if routine or loops_untrained(recording, line):
            yield _index(recording, AtLine(line.site, routine or line.occurrences), kind)


def _only_indexes(source: str) -> bool:
    """Whether a line assigns what a name indexes, and calls nothing that may copy: `x = data[batch]`."""
    parsed = UserLine.of(source).parsed
    return bool(_index_of(source)) and isinstance(parsed.statement, ast.Assign) and not parsed.calls


def _index(recording: Recording, line: AtLine, kind: str) -> Finding:
    name = _index_of(line.site.source)
    often = times(line.count)
    if line.per_step:
        often = f"{times(line.per_step)} a step{some_steps(recording, line.occurrences)}"
    return line.finding(
        INDEX,
        what=f"{f'The index `{name}`' if name else 'An index'} is {kind}, and was copied to mps {often}.",
        cost_ns=COPY.of(line.count),
        fix=index_on_device(name),
    )


def _index_of(source: str) -> str:
    """The variable that indexes, where the line has just one: of `data[order[i : i + 2]]` it is `order`."""
    names = {
        part.id if isinstance(part, ast.Name) else ast.unparse(part)
        for node in UserLine.of(source).parsed.nodes
        if isinstance(node, ast.Subscript)
        for part in [node.slice.value if isinstance(node.slice, ast.Subscript) else node.slice]
        if isinstance(part, (ast.Name, ast.Attribute))
    }
    return names.pop() if len(names) == 1 else ""
