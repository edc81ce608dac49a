"""The results of a recording's queries: small frozen records, plain data without access to the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple

from anymps._paths import project_path
from anymps._vocabulary import Direction, Fate, Phase, RefusalKind, Wait


@dataclass(frozen=True)
class Site:
    """A line of code. `via` is the innermost torch function that it called, empty if none.

    `around` are the lines around it when it was recorded, the first of which has the number `first`; `comments` are the
    other lines of its statement that have a comment for anymps. Both are empty if they were not recorded. `recorded`
    are all lines of the file that the recording has, by their numbers.
    """

    file: str
    line: int
    function: str = ""
    source: str = ""
    via: str = ""
    first: int = field(default=0, compare=False, repr=False)
    around: str = field(default="", compare=False, repr=False)
    comments: str = field(default="", compare=False, repr=False)
    recorded: Mapping[int, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def known(self) -> bool:
        """Whether there is a line at all: entries of threads without Python frames have none."""
        return bool(self.file)

    @property
    def file_line(self) -> tuple[str, int]:
        """What most queries and findings mean by one line, whatever function it called."""
        return self.file, self.line

    @property
    def lines(self) -> Mapping[int, str]:
        """All lines of the file that are known, by their numbers."""
        return {**self.recorded, **dict(enumerate(self.around.split("\n"), self.first) if self.around else ())}


@dataclass(frozen=True)
class Occurrence:
    """Calls of one operator at one site that have the same fate, wait and direction.

    `count` is over the whole run, `steps` the number of complete steps in which it happened. `per_step` is the median
    count of a complete step (as in `StepTable`, without the first one if there are others), or the mean if half of them
    have none. `duration_ns` (on the recording machine) and `moved_bytes` are sums over `count`.
    """

    operator: str
    fate: Fate
    wait: Wait
    direction: Direction
    blocking: bool
    site: Site
    phases: tuple[Phase, ...]
    modules: tuple[str, ...]
    count: int
    steps: int
    per_step: float
    duration_ns: int
    moved_bytes: int


@dataclass(frozen=True)
class WaitQueue:
    """A place where the host waited, and how much it had queued since the previous wait (at any place).

    A place is a line and a kind of wait. `count` and `steps` are those of `Occurrence`; `per_step` is the median over
    the complete steps (without the first if there are others), or the mean if half of them have none. `first_step` and
    `last_step` may be incomplete steps.

    The other fields describe the `measured` waits before which every call kept its detail, without those of the first
    step if later ones wait there too. `operators` is the median number of kernels queued (of two, the lower),
    `most_operators` the largest; `host_ns` and `work_ns` are means, on the recording machine's clock. On the virtual
    device a kernel runs inside its call: `work_ns` is the time inside these calls, the device's work, and `host_ns` the
    rest of the time since the previous wait, in which the host prepared them. `every` is 50 if each 50th of the
    complete steps waits there, and 0 without such a rule.
    """

    site: Site
    wait: Wait
    phases: tuple[Phase, ...]
    count: int
    steps: int
    per_step: float
    first_step: int
    last_step: int
    moved_bytes: int
    measured: int = 0
    operators: int = 0
    most_operators: int = 0
    host_ns: float = 0.0
    work_ns: float = 0.0
    every: int = 0


@dataclass(frozen=True)
class Noted:
    """A mark of something that is not an operator, at one line: how often, its facts, and another line if it has one.

    `occurrence.operator` is `anymps::<what>` with the facts as JSON.
    """

    occurrence: Occurrence
    facts: Mapping[str, object]
    other: Site


@dataclass(frozen=True)
class Optimizer(Noted):
    """The first step of an optimizer; `other` is the line that made it. Options are those of any of its groups."""

    name: str
    tensors: int
    on_mps: int
    torch: bool = False
    dtypes: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    foreach: tuple[str, ...] = ()
    differentiable: tuple[str, ...] = ()
    eps: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnsafeCopy:
    """A non_blocking copy whose host side was touched before the host waited.

    `kind` says what happened: its source was `changed` or `freed`, or its result was `used`. `operator` is the call at
    `site` that touched the tensor, empty if none was seen (`site` is then the copy's). `copy` is the line of the copy,
    `wait` that of the next wait, unknown if there was none yet.
    """

    kind: str
    operator: str
    site: Site
    copy: Site
    wait: Site
    count: int


@dataclass(frozen=True)
class Refusal:
    """A call that MPS refused. `origin` is the line that made the refused tensor, unknown if its file is empty.

    If the kind is INDEX, `site` is the call that was given the index, and `origin` the wait that raised the error.
    """

    kind: RefusalKind
    error: str
    message: str
    operator: str
    site: Site
    origin: Site
    detail: Mapping[str, object]


_LAYOUTS: Final = frozenset(("contiguous", "transposed", "rows", "channels_last", "other"))


@dataclass(frozen=True)
class Form:
    """All of it; empty where it is the usual one.

    `layout` has a word for each of the first four inputs: `contiguous`, `transposed` (the same bytes with the axes in
    another order), `rows` (in another order, but for the last one), `channels_last`, `other` (a slice, for instance);
    empty if all are contiguous. `axes` are those that are reduced, sorted, or indexed, counted from the first.
    `stride`, `dilation` and `groups` are a convolution's.
    """

    layout: Annotated[tuple[str, ...], _LAYOUTS.issuperset] = ()
    axes: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()


PLAIN: Final = Form()


@dataclass(frozen=True)
class Signature:
    """An operator, its fate (what happens to it on mps), and the call's tensors, each as text: `float32[2, 3]`."""

    operator: str
    fate: Fate
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    form: Form = PLAIN


class Call(NamedTuple):
    """One recorded call, as the file holds it; a tuple of numbers, because a run has millions.

    `signature`, `module` and `site` are looked up with `Recording.signature`, `.module` and `.site`; `phase`, `wait`,
    `direction` and `flags` are the numbers of their vocabularies. Times in ns on the recording machine's clock.
    `sequence` is the number of the autograd node that a forward call belongs to or a backward call runs, else -1.
    """

    start_ns: int
    duration_ns: int
    signature: int
    module: int
    site: int
    phase: int
    step: int
    thread: int
    wait: int
    direction: int
    flags: int
    moved_bytes: int
    sequence: int


@dataclass(frozen=True)
class MemorySample:
    """Memory of the device at one moment, in bytes: that of tensors, and all taken from the system. Time in ns."""

    time_ns: int
    allocated_bytes: int
    driver_bytes: int


@dataclass(frozen=True)
class OperatorUse:
    """All calls of one operator with one fate. Durations in ns on the recording machine."""

    name: str
    fate: Fate
    count: int
    duration_ns: int
    moved_bytes: int


@dataclass(frozen=True)
class Line:
    """What one source line did in the whole run; an empty `file` stands for all calls without a known line.

    `backend_changes` counts each change between GPU and CPU: every fallback changes twice
    (aten/src/ATen/native/CPUFallback.cpp copies arguments out and results in at each call). `fused` are further places
    (file, line) whose work is done by kernels of torch.compile that count here.
    """

    file: str
    line: int
    source: str
    on_mps: int
    on_cpu: int
    waits: int
    refused: int
    backend_changes: int
    duration_ns: int
    fused: tuple[tuple[str, int], ...] = ()


class Known(NamedTuple):
    """What happened at a line: `what` is a rule's id, the name of a wait, or an operator that ran on the CPU.

    `file` is as the project or its package names it, and `source` is the line without regard to blanks. The line's
    number is left out: code above it may change.
    """

    what: str
    file: str
    function: str
    source: str


def known_as(what: str, site: Site, roots: Sequence[str]) -> Known:
    """What happened at a line; `roots` are directories that files are named from, the first that fits counts."""
    return Known(what, project_path(site.file, roots), site.function, " ".join(site.source.split()))


def known_from(what: str, file: str, function: str, source: str) -> Known:
    """What a baseline's file says, which an older version may have written with the folders of an environment."""
    return Known(what, project_path(file, ()), function, source)
