"""Define what can run: families of kernels with problems, OpenCL templates and tuning spaces.

Algorithms are parameters. A family's space spans its templates: `ALG` of a convolution says whether it is computed
directly or by Winograd's algorithm, and constraints say where each applies. So the same search, verification and
measurement choose algorithms and tile sizes. A launch may have stages, kernels of its program that run before it each
time and leave results in scratch buffers. A program stays the unit that is compiled, cached and stored.
"""

import ml_dtypes as ml_dtypes  # numpy knows bfloat16 by its name from here on
