"""Finds options of anymps that stand after the script, where the script gets them."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress

from anymps._errors import UsageError
from anymps._text import tell
from anymps.commands._target import Target, TargetError

_MOST_FILES = 200


def check_placement(command: str, own: Collection[str], target: Target) -> None:
    """Raise UsageError for an option of ours after a script that has no such option; warn where it seems to have one.

    A script seems to have one if its text, or a Python file beside or below it, names it as parsers do: `"--steps"`,
    the field `steps: int` of a class, or the parameter `steps=`.
    """
    given = dict.fromkeys(word.partition("=")[0] for word in target.arguments)
    ours = [word for word in given if word in own]
    text = _text(target) if ours else ""
    for option in ours:
        if not text:
            return
        if not _names(text, option):
            raise UsageError(
                f"{option} comes after {target.name}, which has no such option: put {option} before {target.name}, or "
                f"write anymps {command} -- {target.name} if the script does have it"
            )
        tell(
            f"anymps: {option} comes after {target.name}, so the script gets it. To pass it to anymps, put it before "
            f"{target.name}; to hide this message, write anymps {command} -- {target.name}"
        )


def _names(text: str, option: str) -> bool:
    name = re.escape(option.lstrip("-")).replace(r"\-", "[-_]")
    return re.search(rf"""["']-{{0,2}}{name}["'=/]|(?<![\w.]){name}\s*[:=]""", text) is not None


def _text(target: Target) -> str:
    """All that may hold the script's parser; nothing where the script can't be read."""
    try:
        file = target.file.resolve()
        texts = [file.read_text(encoding="utf-8", errors="replace")]
    except (OSError, TargetError):
        return ""
    for path, _ in zip(file.parent.rglob("*.py"), range(_MOST_FILES), strict=False):
        with suppress(OSError):
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)
