"""The C++ text that is put behind a translated source: how each kernel is called, and the table of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from anymps.metal.translation._parameters import Unsupported, buffer_kind, buffer_places
from anymps.metal.translation._rewrite import KernelSource

INITIALISERS = "anymps_initialisers"  # where the functions are that give variables their values, for the runtime
MAX_THREADS = 1024  # of a group, on every Apple GPU; what a kernel's registers allow of it is not known here


def launchers(kernels: Sequence[KernelSource], say: Callable[[Unsupported], str], checked: bool = False) -> str:
    """The launchers of all kernels and the table `anymps_kernels`, which the runtime reads.

    The checker is told of each thread of `checked` kernels, which are fibers.

    A kernel that reads a function constant, or has a parameter that nothing can be bound to, stands there without code,
    with what `say` makes of it in `anymps_refusals`: the others of its source can be used.
    """
    lines = ['\n#line 1 "anymps launchers"']
    rows, refusals, written = [], [], []
    described: list[str] = []
    for number, kernel in enumerate(kernels):
        try:
            if kernel.unbound is not None:
                raise kernel.unbound
            lines += _launcher(number, replace(kernel, synced=True) if checked else kernel)
        except Unsupported as missing:
            rows.append(f'{{"{kernel.name}", anymps_rt::Form::Plain, nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0}}')
            refusals.append(json.dumps(say(missing)))
            written.append("0")
            continue
        refusals.append("nullptr")
        buffers, types = _buffers(kernel), f"anymps_types_{number}::at"
        bits = [f"(anymps_launch::writes<{types}<{index}>> ? 1u << {place} : 0u)" for index, place in buffers]
        written.append(" | ".join(bits) or "0")
        count = max((place + 1 for _, place in buffers), default=0)
        if checked:
            parameter = f"anymps_launch::parameter<{types}"
            described += [f"{parameter}<{index}>>::at({number}, {place})" for index, place in buffers]
        scope = "::".join(("", *kernel.function.scope))
        form = "Groups" if kernel.group else "Fibers" if kernel.synced or checked else "Plain"
        maximum = f"unsigned({kernel.function.max_threads})" if kernel.function.max_threads else str(MAX_THREADS)
        if kernel.function.template and not kernel.function.max_threads.isdigit():
            maximum = str(MAX_THREADS)
        runs = {"Plain": "plain", "Groups": "group"}.get(form, "thread")
        code = f"{scope if runs == 'group' else ''}::anymps_{runs}_{number}"
        rows.append(
            f'{{"{kernel.name}", anymps_rt::Form::{form}, '
            + "".join(f"{code if given == runs else 'nullptr'}, " for given in ("plain", "thread", "group"))
            + f"anymps_launch::shared_bytes<({kernel.pointer})>, {maximum}, {count}, "
            f"{kernel.group.axis if kernel.group else 0}, {int(kernel.group.together) if kernel.group else 0}}}"
        )
    visible = 'extern "C" __attribute__((visibility("default"), used))'
    lines.append(
        f"{visible} const anymps_rt::Kernel anymps_kernels[] = "
        f"{{{', '.join(rows) or '{}'}}};\n{visible} const unsigned anymps_kernel_count = {len(rows)};\n"
        f"{visible} const char* const anymps_refusals[] = {{{', '.join(refusals) or 'nullptr'}}};\n"
        f"{visible} const long {INITIALISERS}[2] = {{0, 0}};\n"
        f"{visible} const unsigned anymps_written[] = {{{', '.join(written) or '0'}}};"
    )
    if checked:
        lines.append(
            f"{visible} const anymps_launch::Parameter anymps_parameters[] = {{{', '.join([*described, '{}'])}}};\n"
            f"{visible} const unsigned anymps_parameter_count = {len(described)};"
        )
    return "\n".join(lines) + "\n"


def _buffers(kernel: KernelSource) -> list[tuple[int, int]]:
    """The parameters that are buffers, each with its place among them."""
    places = buffer_places(kernel.function.parameters)
    return [(index, place) for index, place in enumerate(places) if place is not None]


def _launcher(number: int, kernel: KernelSource) -> list[str]:
    types = f"anymps_types_{number}"
    parameters = kernel.function.parameters
    named = kernel.pointer.startswith("&")
    binds, arguments = [], []
    for index, place in enumerate(buffer_places(parameters)):
        kind = f"{types}::at<{index}>"
        if place is None and not kernel.synced and parameters[index].attribute == "thread_position_in_grid":
            position = "unsigned(anymps_x), anymps_y, anymps_z"
            arguments.append(f"anymps_launch::grid_position<{kind}>::from({position})")
        elif place is None:
            arguments.append(f"ANYMPS_VALUE({kind}, {parameters[index].attribute})")
        else:
            held = f"anymps_launch::{buffer_kind(parameters[index])}<{kind}>"
            binds.append(f"typename {held}::held anymps_{index} = {held}::bind(anymps_l.buffers[{place}]);")
            arguments.append(f"anymps_{index}")
    # By its name where that is enough: a call through a pointer is inlined later, or not at all.
    call = f"{kernel.pointer.removeprefix('&') if named else f'({kernel.pointer})'}({', '.join(arguments)});"
    lines = [f"using {types} = anymps_launch::params<decltype({kernel.pointer})>;"]
    if kernel.group:
        # In the kernel's own namespace, as its statements are.
        spaces = [f"namespace {name} {{" for name in kernel.function.scope]
        whole = kernel.function.max_threads
        usual = f"if (anymps_g.threads == {whole}) return anymps_body_{number}(anymps_g, {whole});"
        lines += [
            *spaces,
            f"static ANYMPS_INLINE void anymps_body_{number}(const anymps_rt::Group& anymps_g, const int anymps_n) {{",
            f"using anymps_types = anymps_launch::params<decltype({kernel.pointer})>;",
            kernel.group.text,
            "}",
            f"static void anymps_group_{number}(const anymps_rt::Group& anymps_g) {{",
            *([usual] if whole.isdigit() else []),  # loops of a known length, as Inductor's groups have
            f"anymps_body_{number}(anymps_g, int(anymps_g.threads));",
            "}",
            *("}" for _ in spaces),
        ]
    elif kernel.synced:
        lines += [
            f"static ANYMPS_UNCHECKED void anymps_thread_{number}(const anymps_rt::Thread& anymps_t) {{",
            "ANYMPS_IF_CHECKED(anymps_check_thread(anymps_t);)",
            "const anymps_rt::Launch& anymps_l = *anymps_t.launch;",
            "const anymps_launch::Member anymps_me{anymps_l, *anymps_t.of, "
            "{{anymps_t.local[0], anymps_t.local[1], anymps_t.local[2]}}, anymps_t.index};",
            *binds,
            call,
            "}",
        ]
    else:
        lines += [
            f"static void anymps_plain_{number}(const anymps_rt::Launch& anymps_l, const anymps_rt::Box& anymps_b) {{",
            *binds,
            "for (unsigned anymps_z = anymps_b.from[2]; anymps_z < anymps_b.to[2]; ++anymps_z)",
            "for (unsigned anymps_y = anymps_b.from[1]; anymps_y < anymps_b.to[1]; ++anymps_y) {",
            "const int anymps_start = int(anymps_b.from[0]), anymps_end = int(anymps_b.to[0]);",
            "if (anymps_start < 0 || anymps_end < 0) __builtin_unreachable();",  # so that `unsigned(x)` cannot wrap
            "ANYMPS_ANY_ORDER",
            "for (int anymps_x = anymps_start; anymps_x < anymps_end; ++anymps_x) {",
            "const anymps_launch::Point anymps_me{anymps_l, {unsigned(anymps_x), anymps_y, anymps_z}};",
            call,
            "}",
            "}",
            "}",
        ]
    return lines
