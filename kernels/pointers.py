"""Let kernels access vectors by pointers to vectors, on devices that are not CPUs.

Compilers for GPUs make an access of each element out of vload and vstore, since these take any element's address. A
pointer to a vector becomes one access of up to 16 bytes. It promises an address that is a multiple of the vector's
size. If compilers know that buffers begin at such addresses, they also read neighbouring elements of a row at once.
Two sides keep these promises:

* A family declares Launch.aligned where every vector that a kernel reads by LOAD_WIDE and writes by STORE_WIDE is a
  multiple of its width away from the beginning of its buffer.
* Every buffer begins at a multiple of the device's base address alignment. OpenCL makes that at least the size of the
  largest vector. Allocations, parts of arenas and packed weights begin so. The executor copies an application's array
  that begins elsewhere, and imports no handle that does (docs/memory.md).

What is in moving_pointers.cl is for the same devices: their kernels compute no address of an access.

CPUs access unaligned vectors as fast as aligned vectors. Their kernels use no pointers to vectors, so that they can
read an application's arrays in place.
"""

import re
from dataclasses import replace

from gputune.core.launches import Launch
from gputune.kernels.template import ELEMENTS, QUANTISED_FACTORS, own_text, template

POINTERS, MOVING = "vector_pointers.cl", "moving_pointers.cl"
_MOVING, _TILES = re.compile(r"^void (matmul_tiled|conv_direct)\(", re.MULTILINE), "register_tile.cl"
"""The kernels whose pointers move, and the template behind whose text they learn that."""

_PARAMETERS = re.compile(r"^__kernel\b[^{]*|^#define \w*_PARAMETERS .*", re.MULTILINE)
"""The declarations of buffers in a text: in heads of kernels, and in macros for heads."""


def aligned(width: int, *distances: int) -> bool:
    """Return whether vectors of `width` elements begin at multiples of their width. distances: in elements, all that
    lies between the beginning of a buffer and a vector is a sum of multiples of these and of the width. Vectors of 3
    are not accessed by pointers, so they may begin anywhere."""
    return width == 3 or not any(distance % width for distance in distances)


def by_pointers(launch: Launch) -> Launch:
    """Return a launch whose text says that buffers are aligned, and accesses vectors by pointers if the family declares
    them aligned, too. The text is the same for all launches of a template. A text without elements.cl stays as it is.
    """
    elements = template(ELEMENTS)
    if elements not in launch.source:
        return launch
    source = launch.source.replace(elements, elements + template(POINTERS))
    keeps_numbers = own_text(QUANTISED_FACTORS) in source  # whose scales follow from where a panel begins
    if _MOVING.search(source) and not keeps_numbers:
        tiles = own_text(_TILES)
        source = source.replace(tiles, tiles + template(MOVING))
    source = _PARAMETERS.sub(lambda found: found[0].replace("*restrict ", "*restrict ALIGNED_BUFFER "), source)
    options = f"{launch.options} -DALIGNED_VECTORS=1" if launch.aligned else launch.options
    return replace(launch, source=source, source_sha256="", options=options)
