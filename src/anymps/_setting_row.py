"""One setting: type, default, flag, variable, key, help, and where it can be given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

_OTHERS: Final = {
    "release": (re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?"), "a release of torch, such as 2.15"),
    "seed": (re.compile(r"[0-9]{1,18}"), "a seed, such as 1"),
}
"""What may stand beside the words of a setting, and how a sentence has it."""

Kind = Literal["flag", "switch", "text", "texts", "word", "integer", "number", "file", "steps", "range"]
"""`flag`: there or not; `switch`: `--x/--no-x`; `word`: one of `words`; `texts`: may be given more than once.

`steps`: the first so many of a run; `range`: those, or some of its middle.
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One setting, as all faces know it.

    `commands` have it as an option, with the text of `helps` where it means something narrower there. `pytest` is the
    help of `--mps-FLAG` and of its twin in the configuration file. `enable` and `notebook` say that `anymps.enable` and
    `%%mps` take it. `bare` is the word that an option stands for where none of its words follows. `other` is what is
    taken beside the words: a release of torch, such as 2.15, or a seed. Child processes inherit what has a variable,
    and do the same. `page` is what docs/settings.md says of the variable.
    """

    name: str
    kind: Kind
    default: Any = None
    help: str = ""
    commands: tuple[str, ...] = ()
    helps: Mapping[str, str] = field(default_factory=dict)
    option: str = ""
    short: str = ""
    metavar: str = ""
    words: tuple[str, ...] = ()
    other: Literal["", "release", "seed"] = ""
    bare: str = ""
    least: float | None = None
    most: float | None = None
    shows_default: bool = False
    variable: str = ""
    key: str = ""
    pytest: str = ""
    enable: bool = False
    notebook: bool = False
    page: str = ""

    @property
    def flag(self) -> str:
        """As commands have it: `--cuda-as-mps`, `--no-children`."""
        return "--" + (self.option or self.name.replace("_", "-"))

    def takes(self, word: str) -> bool:
        """Whether it is one of the words, or what may stand beside them."""
        return word in self.words or (self.other != "" and _OTHERS[self.other][0].fullmatch(word) is not None)

    @property
    def choices(self) -> str:
        """The words as a sentence has them: `cpu, real or a release of torch, such as 2.15`."""
        words = [*self.words, *([_OTHERS[self.other][1]] if self.other else [])]
        return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))

    @property
    def placeholder(self) -> str:
        """What stands for its value in a usage line: `cpu|real|RELEASE`."""
        return self.metavar or "|".join([*self.words, *([self.other.upper()] if self.other else [])])

    @property
    def pytest_flag(self) -> str:
        """As `pytest --mps` has it; with underscores and without its hyphens before, it is the configuration file's."""
        return self.flag.replace("--", "--mps-")


def row(kind: Kind, default: Any = None, help: str = "", **rest: Any) -> Any:
    """A field of `Settings` with all that `Row` says of it."""
    return field(default=default, metadata={"kind": kind, "default": default, "help": help, **rest})
