"""Which kernels read a function constant: `constant bool fast [[function_constant(0)]];`.

A program gives them their values when it makes a pipeline, through `MTLFunctionConstantValues`. In torch nothing does
(2.13: `compile_shader` takes the source alone), so such a kernel cannot be used, and the others of its library can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anymps.metal.translation._parameters import Unsupported
from anymps.metal.translation._structure import Function, Structure
from anymps.metal.translation._tokens import Token

# What a Mac says when the process ends, also where the constant may be missing (`is_function_constant_defined`): the
# assertion of newComputePipelineStateWithFunction: in public logs of macOS 14 to 26; gfx-rs/gfx pull request 1703.
_A_MAC = (
    "function {} cannot be used to build a pipeline state. "
    "Use newFunctionWithName:constantValues:... to get the specialized function"
)


def constant_read(
    kernel: str, function: Function, arguments: Sequence[Token], structure: Structure, names: Mapping[str, set[str]]
) -> Unsupported | None:
    """Why a kernel cannot be used that reads a constant, itself or through what it names.

    `arguments` are those of its template, `names` gives for macros the names within them. A field that has the
    name of a constant is none.
    """
    constants = {token.text: token for token, _ in structure.function_constants}
    if not constants:
        return None
    defined = {one.name for one in structure.functions}
    functions: dict[str, set[str]] = {}
    for one in structure.functions:
        if not one.kernel and not (one.scope and one.scope[-1] in structure.classes):  # those go with their classes
            functions.setdefault(one.name, set()).update(one.own_names)

    def inside(name: str) -> set[str]:
        found = structure.variables.get(name, set()) | functions.get(name, set())
        if name in structure.classes:
            return found | (structure.classes[name] - structure.members)
        return found if name in defined else found | names.get(name, set())

    reached: set[str] = set()
    open_names = {*function.own_names, *(token.text for token in arguments if token.kind == "name")}
    while open_names:
        reached |= open_names
        open_names = set().union(*map(inside, open_names)) - reached
    constant = next((token for name, token in constants.items() if name in reached), None)
    if constant is None:
        return None
    return Unsupported(
        f"the kernel '{kernel}' reads the function constant '{constant.text}'",
        constant.start,
        f', to which torch.mps.compile_shader gives no value; a Mac ends the process here: "{_A_MAC.format(kernel)}"',
    )
