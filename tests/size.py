"""Count what the team carries: lines of Python, C++ and tests, words of hand-written pages.

`python -m tests.size` writes lower numbers into tests/size.toml. `python -m tests.size --raise python.report "why"` is
the only way up: it notes the reason beside the number.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")

Sizes = dict[str, dict[str, int]]

# Written by programs (`make pages`, tests.conformance, tests.oracle), or longer with each release.
GENERATED = ("docs/rules/", "docs/commands/", "docs/known-bugs.md", "docs/fidelity", "CHANGELOG.md")
HEAD = """\
# What the team carries, by package: lines of Python, of C++ and headers, of tests, and words of hand-written pages.
# tests/test_size.py fails where a number grows. A change that lowers one writes it down: python -m tests.size
# A new feature pays for its lines by removing others. Raising a number takes a reason, in the table "raised":
# python -m tests.size --raise python.report "why"
"""


def count() -> Sizes:
    """Return the sizes now: section, package, number."""
    sizes = {section: Counter[str]() for section in ("python", "native", "tests", "words")}
    for path in (ROOT / "src" / "anymps").rglob("*"):
        section = {".py": "python", ".pyi": "python", ".cpp": "native", ".h": "native"}.get(path.suffix)
        if section:
            sizes[section][_package(path, ROOT / "src" / "anymps")] += _lines(path)
    for path in (ROOT / "tests").rglob("*"):
        if path.suffix in (".py", ".cpp", ".h"):
            sizes["tests"][_package(path, ROOT / "tests")] += _lines(path)
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(GENERATED):
            place = name.split("/")
            sizes["words"]["/".join(place[:2]) if len(place) > 2 else name] += len(path.read_text("utf-8").split())
    return {section: dict(sorted(counts.items())) for section, counts in sizes.items()}


def read() -> tuple[Sizes, dict[str, str]]:
    """Return the recorded sizes, and the reason for each number that was raised, by "section.package"."""
    table = tomllib.loads(TABLE.read_text("utf-8"))
    return {section: table[section] for section in ("python", "native", "tests", "words")}, table.get("raised", {})


def write(sizes: Sizes, raised: dict[str, str]) -> None:
    """Write the table."""
    lines = [HEAD]
    for section, counts in sizes.items():
        lines += [f"[{section}] # {sum(counts.values())}"]
        lines += [f"{_key(name)} = {number}" for name, number in sorted(counts.items())]
        lines += [""]
    lines += ["[raised]", *(f"{_key(name)} = {_quote(why)}" for name, why in sorted(raised.items()))]
    TABLE.write_text("\n".join(lines) + "\n", "utf-8")


def differences(recorded: Sizes, now: Sizes) -> tuple[list[str], list[str]]:
    """Return what grew beyond its number, and the numbers that can be lowered, a line each."""
    grown, lower = [], []
    for section in now:
        for name in sorted({*recorded[section], *now[section]}):
            was, is_now = recorded[section].get(name, 0), now[section].get(name, 0)
            line = f"{section}.{name}: {was} -> {is_now}"
            if is_now > was:
                grown.append(line)
            elif is_now < was or name not in now[section]:
                lower.append(line)
    return grown, lower


def _package(path: Path, root: Path) -> str:
    """The first folder below `root`; for the device's native core the second one, too."""
    place = path.relative_to(root).parts
    if len(place) == 1:
        return "modules"
    return "/".join(place[:2]) if place[1] == "native" else place[0]


def _lines(path: Path) -> int:
    return len(path.read_bytes().splitlines())


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else _quote(name)


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main(arguments: list[str]) -> str | None:
    """Lower the numbers, or raise one with a reason. Returns what went wrong."""
    recorded, raised = read()
    now = count()
    if arguments[:1] == ["--raise"]:
        if len(arguments) != 3 or not arguments[2].strip():
            return 'usage: python -m tests.size --raise SECTION.PACKAGE "why"'
        section, _, name = arguments[1].partition(".")
        if name not in now.get(section, {}):
            return f"{arguments[1]} is not in the table"
        recorded[section][name] = now[section][name]
        raised[arguments[1]] = arguments[2]
    kept = {
        section: {name: min(number, recorded[section].get(name, 0)) for name, number in counts.items()}
        for section, counts in now.items()
    }
    write(
        kept, {place: why for place, why in raised.items() if place.partition(".")[2] in kept[place.partition(".")[0]]}
    )
    grown, _ = differences(kept, now)
    return "grew; remove as much elsewhere, or use --raise:\n" + "\n".join(grown) if grown else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
