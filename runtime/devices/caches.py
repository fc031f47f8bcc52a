"""Tell how many bytes a device's last cache holds, from what its driver reports, which may be another cache."""

from gputune.core.identity import DeviceIdentity

NVIDIA_FIRST_BYTES, NVIDIA_SHARE_BYTES = 256 << 10, 512 << 10
"""A multiprocessor's first cache has no more. Of the last cache there is about so much for each: 0.4 MB on an A100 and
an H100, 0.6 MB on an RTX 4090, 0.1 MB on an RTX 3060."""

MOST_BYTES = 512 << 20
"""No device has a larger cache, so that a driver that reports one has reported something else."""


def last_cache_bytes(identity: DeviceIdentity, reported: int) -> int:
    """Return the bytes of the last cache; 0 if it is not known. reported: CL_DEVICE_GLOBAL_MEM_CACHE_SIZE.

    NVIDIA's driver reports the first caches of all multiprocessors: 132 of 32 KiB on an H100, whose last cache has
    50 MB. It never says how large that is."""
    if identity.device_type == "cpu":
        return reported
    each, rest = divmod(reported, max(identity.compute_units, 1))
    if "NVIDIA" in identity.vendor.upper() and rest == 0 and each <= NVIDIA_FIRST_BYTES:
        return identity.compute_units * NVIDIA_SHARE_BYTES
    return reported if reported <= MOST_BYTES else 0
