"""Metal kernels run under a checker (`--check-shaders`): what it is given, what it finds, and in which words."""

from anymps.metal.checking._events import checker
from anymps.metal.checking._launch import CheckedLaunch, ShaderFaultWarning, take_shader_faults
from anymps.metal.checking._messages import ShaderFault
from anymps.metal.checking._sample import Samples, checks_shaders, sample_seed
