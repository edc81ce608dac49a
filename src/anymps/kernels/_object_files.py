"""Machine code of compiled kernels: made once, kept by the digest of its source, loaded into this process.

A kept file holds the kernel's description before its object, so that LLVM reads no bitcode of a kernel that was made
before.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import struct
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anymps._errors import KernelsError
from anymps.kernels._lanes import as_lanes
from anymps.kernels._llvm import llvm
from anymps.kernels._metadata import Signature, read_signature
from anymps.kernels._support import address_of
from anymps.kernels._translate import SHARED_TYPE, translate
from anymps.metal import cache_directory, find_or_make, undefined_symbols


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel, its bytes of threadgroup memory and, once it is in this process, the address of its entry.

    If its threads work `together` they run as loops over lanes, else each by itself.
    """

    signature: Signature
    together: bool
    shared_bytes: int
    address: int = 0


_lock = threading.Lock()  # LLVM's engine serves one thread
_LENGTH = struct.Struct("<Q")  # of the description, at the beginning of a file


def load_object(name: str, bitcode: bytes) -> LoadedKernel:
    """A kernel of that bitcode, ready to be run.

    Raises KernelsError for a kernel that cannot run here, and BuildError where its code cannot be kept.
    """
    with _lock:
        binding, (_, _, _, processor) = llvm(), _target()
        key = hashlib.sha256(f"{processor}\0{_translator()}\0".encode() + bitcode).hexdigest()[:20]
        file = find_or_make(
            cache_directory("objects", key[:2]), key, ".o", lambda path: _make(name, bitcode, key, path)
        ).read_bytes()
        (length,) = _LENGTH.unpack_from(file)
        # The file is this user's own and whole, and machine code: what it describes is trusted as what it does.
        described: LoadedKernel = pickle.loads(file[_LENGTH.size : _LENGTH.size + length])
        data = file[_LENGTH.size + length :]
        _provide(name, data)
        engine = _engine()
        engine.add_object_file(binding.ObjectFileRef.from_data(data))
        engine.finalize_object()
        if described.together:
            address = engine.get_global_value_address(f"anymps_lanes_{key}")
        else:
            address = engine.get_function_address(f"anymps_plain_{key}")
        return replace(described, address=address)


def _make(name: str, bitcode: bytes, key: str, path: Path) -> None:
    """Translates and compiles a kernel into a file."""
    binding, (machine, layout, triple, _) = llvm(), _target()
    try:
        text = str(binding.parse_bitcode(bitcode))
    except RuntimeError as error:
        raise KernelsError(f"LLVM cannot read the bitcode of the kernel {name}: {_last(error)}") from None
    signature = read_signature(text)
    translated, together = translate(text, signature, key, layout, triple)
    module = _optimised(name, translated, machine)
    if together:
        lanes = as_lanes(str(module), f"anymps_begin_{key}", key, functools.partial(_demoted, name))
        module = _optimised(name, lanes, machine)
    data = bytes(machine.emit_object(module))
    described = pickle.dumps(LoadedKernel(signature, together, _shared_bytes(translated)))
    path.write_bytes(_LENGTH.pack(len(described)) + described + data)


def _demoted(name: str, text: str) -> str:
    """The text of the module with values in memory that are used in more than one block."""
    binding = llvm()
    module = _parsed(name, text)
    manager = binding.create_new_module_pass_manager()
    manager.add_register_to_memory_pass()
    manager.run(module, binding.create_pass_builder(_target()[0], binding.create_pipeline_tuning_options()))
    return str(module)


@functools.cache
def _translator() -> str:
    """The digest of all sources that make an object of bitcode, or say what one is."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()


@functools.cache
def _target() -> tuple[Any, str, str, str]:
    """This machine's code generator, its data layout and triple, and what tells it from another."""
    binding = llvm()
    triple = binding.get_default_triple()
    cpu, features = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    machine = binding.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3, jit=True)
    version = ".".join(map(str, binding.llvm_version_info))
    return machine, str(machine.target_data), triple, "\0".join((version, triple, cpu, features))


@functools.cache
def _engine() -> Any:
    binding = llvm()
    machine = binding.Target.from_triple(binding.get_default_triple()).create_target_machine(jit=True)
    return binding.create_mcjit_compiler(binding.parse_assembly(""), machine)


def _optimised(name: str, text: str, machine: Any) -> Any:
    """A module of that text, as LLVM's passes leave it."""
    binding, module = llvm(), _parsed(name, text)
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def _parsed(name: str, text: str) -> Any:
    try:
        module = llvm().parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise KernelsError(f"the kernel {name} cannot be translated for this machine: {_last(error)}") from None
    return module


def _last(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]


def _shared_bytes(text: str) -> int:
    """The size of what the module keeps in threadgroup memory."""
    if f"%{SHARED_TYPE} = type" not in text:
        return 0
    binding, (_, layout, *_) = llvm(), _target()
    module = binding.parse_assembly(text)
    type_ = module.get_global_variable(SHARED_TYPE).global_value_type  # by the variable: types are renamed
    return int(binding.create_target_data(layout).get_abi_size(type_))


def _provide(name: str, data: bytes) -> None:
    """Tells LLVM where the functions lie that an object calls: what it does not find it would call at address 0."""
    for symbol in undefined_symbols(data):
        address = address_of(symbol)
        if address is None:
            raise KernelsError(f"the kernel {name} calls {symbol}, which is not known here")
        llvm().add_symbol(symbol, address)
