"""From a kernel family's instances to what the protocol sends."""

import hashlib
from functools import lru_cache

from gputune.kernels.family import Instance, Launch
from gputune.kernels.space import Configuration
from gputune.server.protocol import messages


@lru_cache(maxsize=4096)
def source_sha256(source: str) -> str:
    """The name under which a target server remembers a kernel source."""
    return hashlib.sha256(source.encode()).hexdigest()


def launch_message(launch: Launch) -> messages.Launch:
    """One launch as a message."""
    return messages.Launch(
        source=launch.source,
        source_sha256=source_sha256(launch.source),
        entry=launch.entry,
        options=launch.options,
        global_size=launch.global_size,
        local_size=launch.local_size,
        arguments=launch.arguments,
        stages=tuple(
            messages.Stage(stage.entry, stage.global_size, stage.local_size, stage.arguments) for stage in launch.stages
        ),
    )


def variant_message(instance: Instance, configuration: Configuration) -> messages.Variant:
    """An instance and the configuration it was rendered from as a message."""
    return messages.Variant(
        configuration=dict(configuration),
        prepare=tuple(launch_message(launch) for launch in instance.prepare),
        main=launch_message(instance.main),
        packed=dict(instance.packed),
        scratch=dict(instance.scratch),
    )
