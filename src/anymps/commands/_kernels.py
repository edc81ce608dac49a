"""`anymps kernels`: PyTorch's own compiled Metal kernels, from the macOS wheel that the user gives."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import click

from anymps._command_settings import KernelsAddSettings, KernelsListSettings
from anymps._errors import UsageError
from anymps._text import means_release, plural, size
from anymps.cleanup import PrivateFolder
from anymps.commands._help import Group
from anymps.commands._options import takes
from anymps.kernels import add_kernels, added_release, download, open_kernels, read_release, wheel_digest
from anymps.rules import installed_torch


@click.group(
    cls=Group, short_help="Read PyTorch's own Metal kernels from its macOS wheel.", invoke_without_command=True
)
@click.pass_context
def kernels(context: click.Context) -> None:
    """Read PyTorch's own compiled Metal kernels from a macOS wheel of any release.

    anymps does not contain them: they are kept in your cache directory only.
    """
    if context.invoked_subcommand is None:
        raise UsageError(f"name what to do: {', '.join(sorted(kernels.commands))} (anymps kernels --help)")


@kernels.command(short_help="Read the kernels of a macOS wheel.")
@click.argument("wheel", required=False, type=click.Path(path_type=Path))
@takes("kernels add")
def add(asked: KernelsAddSettings, wheel: Path | None) -> int:
    """Read the Metal kernels of WHEEL, a macOS wheel of torch, and keep them in the cache.

    The wheel is of the installed release, or of the one that --torch names.
    """
    if (wheel is None) != asked.download:
        raise UsageError("name a wheel, or let pip get it with --download (anymps kernels add --help)")
    release = _installed() if asked.release is None else asked.release
    if wheel is not None:
        release = _whole(release, wheel)
        library, origin, digest = add_kernels(wheel, release), str(wheel), wheel_digest(wheel)
    else:
        click.echo(f"downloading the macOS wheel of torch {release}", err=True)
        with PrivateFolder("anymps-wheel-") as folder:
            fetched = download(release if release.count(".") > 1 else f"{release}.*", folder)
            release = _whole(release, fetched)
            library, origin, digest = (
                add_kernels(fetched, release),
                f"{fetched.name}, downloaded by pip",
                wheel_digest(fetched),
            )
    click.echo(
        f"added {plural(len(library.kernels), 'kernel')} of torch {release}, "
        f"{size(library.path.stat().st_size)} in {library.path}\n"
        f"from {origin} (SHA-256 {digest})"
    )
    return 0


@kernels.command("list", short_help="List kernels by name.")
@click.argument("pattern", required=False)
@takes("kernels list")
def list_(asked: KernelsListSettings, pattern: str | None) -> int:
    """List the kernels that were added: those with PATTERN in their names, or that match it ('add_dense_*')."""
    release = added_release(asked.release or _installed())
    library = open_kernels(release)
    wanted = "*" if pattern is None else pattern if any(sign in pattern for sign in "*?[") else f"*{pattern}*"
    names = sorted(name for name in library.kernels if fnmatchcase(name, wanted))
    if not names:
        raise UsageError(f"torch {release} has no Metal kernel {pattern!r}: it has {len(library.kernels):,} others")
    click.echo("\n".join(names))
    return 0


def _whole(release: str, wheel: Path) -> str:
    """The wheel's release, if `release` means it: `2.15` of a wheel of 2.15.0."""
    found = read_release(wheel)
    return found if means_release(release, found) else release


def _installed() -> str:
    return str(installed_torch().version).partition("+")[0]
