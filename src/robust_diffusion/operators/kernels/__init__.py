"""Backends in C++ and Triton; without either, the operators run in PyTorch."""

from robust_diffusion.operators.kernels.base import MAX_EXPONENT as MAX_EXPONENT
from robust_diffusion.operators.kernels.base import Attended as Attended
from robust_diffusion.operators.kernels.base import Diffused as Diffused
from robust_diffusion.operators.kernels.base import Kernels as Kernels
from robust_diffusion.operators.kernels.base import Modulation as Modulation
from robust_diffusion.operators.kernels.selection import Backend as Backend
from robust_diffusion.operators.kernels.selection import backend_set as backend_set
from robust_diffusion.operators.kernels.selection import current_backend as current_backend
from robust_diffusion.operators.kernels.selection import kernels_for as kernels_for
from robust_diffusion.operators.kernels.selection import set_backend as set_backend
