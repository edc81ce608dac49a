"""`anymps join`: one recording of many, such as those of the shards of a suite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anymps._command_settings import JoinSettings
from anymps._errors import UsageError
from anymps.commands._help import Command
from anymps.commands._options import takes
from anymps.commands._show import say
from anymps.report import plural

if TYPE_CHECKING:
    from anymps.record import Recording


@click.command(cls=Command, short_help="Combine recordings into one.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@takes("join")
def join(asked: JoinSettings, files: tuple[Path, ...]) -> int:
    """Combine recordings into one: shards of a suite, ranks of a training, or several runs.

    All must have the same torch release and the same Mac. In the result each is a process, named after its file. Needs
    no torch.
    """
    output = asked.output
    if any(_same(file, output) for file in files):
        raise UsageError(f"--output {output} is one of the recordings to join: name another file")
    with opened_as_one(files, output) as recording:
        say(f"{output} holds {plural(len(files), 'recording')}, {plural(recording.entry_count, 'call')}")
    return 0


@contextmanager
def opened_as_one(files: Sequence[Path], output: Path | None = None) -> Iterator[Recording]:
    """The recording itself if there is one, else all of them joined, in memory or at `output`.

    Raises RecordingError if one cannot be read, or if they are of different releases or Macs, and UsageError for one
    that is named twice.
    """
    from anymps.record import Recording, check_alike, join_into

    again = next(
        (file for number, file in enumerate(files) if any(_same(file, earlier) for earlier in files[:number])), None
    )
    if again is not None:
        raise UsageError(f"{again} is named twice: each recording counts once")
    with ExitStack() as stack:
        opened = [stack.enter_context(Recording.open(file)) for file in files]
        if len(opened) == 1 and output is None:
            yield opened[0]
            return
        parts = list(zip(_names(files), opened, strict=True))
        check_alike(parts)
        yield stack.enter_context(join_into(parts, output))


def _names(files: Sequence[Path]) -> list[str]:
    """The names of the files without their endings where these differ, else the whole paths."""
    short = [file.stem for file in files]
    return short if len(set(short)) == len(short) else [str(file) for file in files]


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
