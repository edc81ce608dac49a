"""The kernels that a user has added, in the user's cache: one container for each release of torch."""

from __future__ import annotations

from pathlib import Path

from anymps._atomic import Staged
from anymps._cache import CACHE_VARIABLE, cache_home, why_unsafe
from anymps._errors import KernelsError, UsageError
from anymps._text import means_release
from anymps.kernels._metallib import Metallib
from anymps.kernels._wheel import SECTION, read_kernels, read_release

_SUFFIX = ".metallib"


def kernels_folder() -> Path:
    """Where added kernels lie. It may not exist. Raises KernelsError if there is no place for a cache."""
    try:
        return cache_home() / "kernels"
    except UsageError as error:
        raise KernelsError(str(error)) from None


def added_releases() -> list[str]:
    """The releases whose kernels were added, the newest last."""
    prefix = "torch-"
    found = [path.name[len(prefix) : -len(_SUFFIX)] for path in kernels_folder().glob(f"{prefix}*{_SUFFIX}")]
    return sorted(found, key=lambda release: [int(part) if part.isdigit() else 0 for part in release.split(".")])


def added_release(release: str) -> str:
    """The added release that a text means: `2.15` is the newest added 2.15, and `2.15.0` that one.

    Raises KernelsError, with the command that adds them, if there is none.
    """
    meant = [one for one in added_releases() if means_release(release, one)]
    if not meant:
        raise KernelsError(
            f"the Metal kernels of torch {release} have not been added: run "
            f"`anymps kernels add --torch {release} --download`"
        )
    return meant[-1]


def open_kernels(release: str) -> Metallib:
    """The kernels of a release.

    Raises KernelsError if they were not added, are not whole, or lie where other users may write.
    """
    path = _place(release)
    try:
        reason = why_unsafe(path) or why_unsafe(path.parent)
        if reason:
            raise KernelsError(f"{reason}, and code is loaded from there: remove that permission (chmod go-w)")
        return Metallib(path)
    except FileNotFoundError:
        raise KernelsError(
            f"the Metal kernels of torch {release} have not been added: run `anymps kernels add --download`"
        ) from None
    except ValueError as error:
        if isinstance(error, KernelsError):
            raise
        raise KernelsError(f"{path} was damaged ({error}): add the wheel again (anymps kernels add)") from None
    except OSError as error:
        raise KernelsError(f"{path} cannot be read: {error.strerror or error}") from None


def add_kernels(wheel: Path, release: str) -> Metallib:
    """Takes the kernels out of the macOS wheel of `release`, checks each, and keeps them.

    What was there of that release is replaced once the new ones are whole. Raises KernelsError, in one line, for a
    file that is no such wheel, a wheel of another release, and a place that cannot be written.
    """
    found = read_release(wheel)
    if found != release:
        raise KernelsError(f"{wheel} is torch {found}, not {release}; to add it, name its release: --torch {found}")
    target = _place(release)
    try:
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with Staged(target) as staged:
            staged.file.writelines(read_kernels(wheel))
            staged.sync()
            library = Metallib(staged.path)
            for name in library.kernels:
                library.blob(name)  # compares it with its digest
            staged.commit()
    except OSError as error:
        raise _unwritable(target.parent, error) from None
    except KernelsError:
        raise
    except ValueError as error:
        raise KernelsError(f"the Metal kernels of {wheel} (section {SECTION}) cannot be read: {error}") from None
    library.path = target
    return library


def _place(release: str) -> Path:
    return kernels_folder() / f"torch-{release}{_SUFFIX}"


def _unwritable(folder: Path, error: OSError) -> KernelsError:
    return KernelsError(
        f"Metal kernels cannot be kept in {folder} ({error.strerror or error}): make room there, "
        f"or name another place in {CACHE_VARIABLE}"
    )
