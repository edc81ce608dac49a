"""The parts of a command's `--help`: examples, options by what they are for, and exit codes."""

from __future__ import annotations

from typing import Final

import click

EXAMPLES: Final = {
    "": (
        ('anymps run --mac "M1 8GB" train.py', "what would this Mac do?"),
        ("anymps fix train.py", "print a patch for what it finds"),
        ("anymps plan train.py", "which Macs does it fit on, and how fast?"),
    ),
    "bench": (
        ("anymps bench train.py", "time the optimizer steps of a script"),
        ("anymps bench model.py:forward --device cpu,mps", "compare a function on two devices"),
    ),
    "compare": (
        ("anymps compare train.py", "the CPU against mps"),
        ("anymps compare --of 2.13 --with 2.15 train.py", "the kernels of two releases"),
    ),
    "convert": (
        ("anymps convert model.pt model-mps.pt", "the same format"),
        ("anymps convert --to safetensors model.pt model.safetensors", "another format"),
    ),
    "coverage": (("anymps coverage take", ""), ("anymps coverage --torch 2.15 '*pool*'", "in another release")),
    "diff": (("anymps diff before.anymps after.anymps", "for CI: exits with 1 if something is worse"),),
    "doctor": (("anymps doctor", ""),),
    "explain": (
        ("anymps explain MPS201", "one rule"),
        ("anymps explain", "all rules"),
    ),
    "fix": (
        ("anymps fix train.py --epochs 1", "print the patch"),
        ("anymps fix --write train.py --epochs 1", "apply it"),
    ),
    "join": (("anymps join -o all.anymps rank0.anymps rank1.anymps", "two ranks of a training"),),
    "join-manifests": (("anymps join-manifests --into mps.toml shard1.toml shard2.toml", ""),),
    "kernels": (("anymps kernels add --download", "those of the installed torch, from its macOS wheel"),),
    "kernels add": (("anymps kernels add --download --torch 2.15", ""),),
    "kernels list": (("anymps kernels list 'add_dense_*'", "names that match"),),
    "kernels remove": (("anymps kernels remove --torch 2.15", ""),),
    "kernels show": (("anymps kernels show fused_adamw_float_float", ""),),
    "plan": (
        ("anymps plan train.py", "which Mac?"),
        ('anymps plan --mac "M4 Pro 24GB" --what-if batch=8,bf16 train.py', "one Mac, and a change"),
    ),
    "report": (
        ("anymps report", "the last run"),
        ("anymps report --format html --output run.html run.anymps", "a page"),
    ),
    "run": (
        ('anymps run --mac "M3 Pro 18GB" train.py --epochs 1', "with arguments of the script"),
        ("anymps run --report html=report.html train.py", "a page to read and to send"),
        ("anymps run --fail-on warning train.py", "for CI"),
    ),
    "verify": (
        ("anymps verify", "on a Mac: writes mac-answers.json.gz"),
        ("anymps verify --read mac-answers.json.gz", "where this device differs from that Mac"),
    ),
}
"""A command line, and what it is for, by command; the empty name is `anymps` itself."""

EXIT_CODES: Final = (
    ("0", "", "success"),
    ("0", "run bench", "the script's own exit code is passed on unchanged"),
    ("1", "run bench", "the script or function ended with an exception"),
    ("1", "doctor", "no mps device is possible"),
    ("1", "diff", "new findings of the severity of --fail-on or higher"),
    ("1", "compare", "the numbers diverge, or the script fails in one of the runs"),
    ("1", "verify", "with --read, the answers differ from the file's"),
    ("2", "", "wrong usage, or something is missing (a file, a Mac, a compiler, a torch) or cannot be written"),
    ("2", "plan bench", "the script cannot be planned or timed"),
    ("2", "compare", "the script fails in both runs"),
    ("2", "convert", "the checkpoint cannot be converted"),
    ("3", "run report", "findings, with --fail-on, in a script that ended with 0"),
    ("4", "run compare", "nothing ran on mps in a script that ended with 0, without --allow-unused"),
    ("70", "", "a bug in anymps: please report its traceback"),
    ("130", "", "interrupted (Ctrl-C)"),
)
"""Each code, the commands that end with it (all where none is named), and what it means."""

_GROUPS: Final = {
    "Options": (),
    "Mac": ("mac", "macs", "against", "torch", "require", "fallback", "kernels"),
    "Report": ("reports", "report", "verbose", "live", "record", "form", "output", "json"),
    "CI": ("fail_on", "worse", "baseline", "write_baseline", "allow_unused", "root"),
    "Checks": ("check_shaders", "check_numbers", "strict_copies"),
    "Advanced": ("substrate", "alone", "source", "children", "start_method", "arguments", "of_python", "allow_writes"),
}
"""The groups of options, by the names of their settings; all others are in the first."""

_FEW: Final = 8  # options, which need no groups


class Command(click.Command):
    """A command whose help has examples, groups where there are many options, and exit codes."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the options and the exit codes."""
        write_examples(ctx, formatter)
        for name, records in {**self.grouped(ctx), "Exit codes": exit_codes(ctx)}.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def grouped(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return the options, each with its help, by group."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _GROUPS}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                names = (name for name, settings in _GROUPS.items() if option.name in settings)
                groups[next(names, "Options")].append(record)
        found = [record for records in groups.values() for record in records]
        if len(found) <= _FEW:
            groups = {"Options": found}
        return {name: records for name, records in groups.items() if records}


class Group(click.Group):
    """A command of commands, with examples in its help."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the options, the commands and the exit codes."""
        write_examples(ctx, formatter)
        super().format_options(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl(exit_codes(ctx))


def examples(ctx: click.Context) -> list[str]:
    """Return the examples of a command, each with what it is for."""
    rows = EXAMPLES[ctx.command_path.partition(" ")[2]]
    width = max(len(line) for line, _ in rows)
    return [f"{line:<{width}}  # {purpose}" if purpose else line for line, purpose in rows]


def write_examples(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the examples of a command."""
    with formatter.section("Examples"):
        for line in examples(ctx):
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def exit_codes(ctx: click.Context) -> list[tuple[str, str]]:
    """Return the codes of a command with their meanings; of `anymps` itself, all."""
    own = ctx.command_path.split(" ")[1:2]
    found: dict[str, list[str]] = {}
    for code, commands, meaning in EXIT_CODES:
        if not own or not commands or own[0] in commands.split(" "):
            found.setdefault(code, []).append(
                meaning if own or not commands else f"{', '.join(commands.split(' '))}: {meaning}"
            )
    return [(code, "; ".join(meanings)) for code, meanings in found.items()]
