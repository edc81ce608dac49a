"""A script and the project's own modules that it imports: which files may be changed, and which have been."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from anymps._errors import UsageError
from anymps._paths import INSTALLED
from anymps.fix._script import Script
from anymps.record import Site

_FOREIGN = (*INSTALLED, "node_modules")


@dataclass(frozen=True)
class Program:
    """A script and its files that are changed so far. What lies below `root` is the project's own.

    The root is the top of the git repository that the script is in; without one, the script's folder. Installed
    packages and virtual environments below it are none of the project's.
    """

    main: Script
    root: Path
    changed: dict[Path, Script] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, folder: Path | None = None) -> Program:
        """The program of a script, or of a module that is found from a folder.

        Raises UsageError, in one line, for a file that is no Python script.
        """
        if path.suffix == ".ipynb":
            raise UsageError(
                f"{path} is a notebook, and anymps fix works on scripts: convert it with 'jupyter nbconvert --to "
                "script'"
            )
        here = path.resolve().parent if folder is None else folder.resolve()
        root = next((parent for parent in (here, *here.parents) if (parent / ".git").exists()), here)
        return cls(Script.read(path), root)

    def owns(self, site: Site) -> bool:
        """Whether a site lies in a Python file of the project."""
        if not site.known:
            return False
        path = Path(site.file).resolve()
        if path == self.main.path.resolve():
            return True
        if path.suffix != ".py" or not path.is_relative_to(self.root) or not path.is_file():
            return False
        inner = path.relative_to(self.root)
        folders = [self.root.joinpath(*inner.parts[:depth]) for depth in range(1, len(inner.parts))]
        return not any(folder.name in _FOREIGN or (folder / "pyvenv.cfg").exists() for folder in folders)

    def script(self, file: Path) -> Script:
        """The script of a file, as it stands in this program. Raises UsageError, in one line, if it cannot be read."""
        path = file.resolve()
        if path == self.main.path.resolve():
            return self.changed.get(path, self.main)
        return self.changed.get(path) or Script.read(Path(os.path.relpath(path)))

    def having(self, script: Script) -> Program:
        """The program with a script in the place of the one that it has of this file."""
        return replace(self, changed={**self.changed, script.path.resolve(): script})

    def files(self, loaded: Iterable[str]) -> list[Path]:
        """The script, and those of the `loaded` files of modules that are the project's own."""
        own = (Path(file).resolve() for file in loaded if self.owns(Site(file, 1)))
        return list(dict.fromkeys((self.main.path.resolve(), *own)))

    def differences(self) -> Iterator[tuple[Script, Script]]:
        """Each changed file as it was read and as it is now, the script first, then by name."""
        own = self.main.path.resolve()
        for path in sorted(self.changed, key=lambda file: (file != own, file)):
            before = self.main if path == own else Script.read(self.changed[path].path)
            if before.text != self.changed[path].text:
                yield before, self.changed[path]

    def text_of(self, file: str) -> str:
        """The text of a file; the empty one if there is none that can be read."""
        try:
            return self.script(Path(file)).text
        except UsageError:
            return ""
