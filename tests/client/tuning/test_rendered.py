"""Test the digests of rendered launches: they equal digests from earlier versions, so that old caches hit."""

from dataclasses import dataclass, replace

import pytest

from gputune.client.tuning.search.rendered import rendered_sha256
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Instance, Launch, Stage

from ...kernels.one_of_each import ONE_OF_EACH

# Recorded when the digest was of the repr of the launches. Sources are replaced, so that templates may change. Names of
# macros of MatMul and Recurrent have changed since.
BEFORE = {
    ("Softmax", "VW=2 LANES=1 DIMY=4 KEEP=1"): "2e5e786e751a28ac6cd1cd6ec53ae761b8423f16ad54aa53084a9ceb2ddc8819",
    ("Move", "VW=4 WPT=4 DIMX=2 DIMY=2"): "bb465c340a80736926244d9670786e8a0c3adb00374f2694763d5a367a72513f",
    (
        "MatMul",
        "MR=7 NV=2 VW=16 KU=1 KA=1 LM=1 LN=1 ORDER=0 PF=0",
    ): "33de1082cd4484d489e41da61a00cd70b48a6df1655c604499c913872bffe56f",
    (
        "SeparableConv",
        "MR=5 RT=1 NV=1 VW=8 KU=2 LN=1 SPLIT=1 PF=0",
    ): "2d51a0d1435ab614ddd01c988dc2d09507b31c4c38c7774f1761b3c16344d2b5",
    (
        "Recurrent",
        "MB=1 NV=1 VW=16 LANES=1 LOCAL=1",
    ): "f59f8e1c22562737cb28c28818b6c2bb0c8abee32d5995c13db5c0e909004141",
}


@pytest.mark.parametrize(("op", "parameters"), BEFORE)
def test_digests_are_those_of_caches_written_before(op: str, parameters: str) -> None:
    configuration = {name: int(value) for name, value in (each.split("=") for each in parameters.split())}
    instance = family_of(op).render(ONE_OF_EACH[op], configuration)
    plain = replace(instance, main=_plain(instance.main), prepare=tuple(map(_plain, instance.prepare)))
    assert rendered_sha256(plain) == BEFORE[op, parameters]


def test_every_part_counts() -> None:
    stage = Stage("fill", (32,), (4,), ("scratch", 3))
    main = Launch("text", "f", "-DN=4", (64, 2), (8, 1), ("output", -7), (stage,))
    whole = Instance(main, (main,), {"packed": 256}, {"scratch": 512})
    others = [
        replace(whole, main=replace(main, source="another")),
        replace(whole, main=replace(main, stages=(replace(stage, arguments=("scratch", 4)),))),
        replace(whole, main=replace(main, stages=())),
        replace(whole, prepare=()),
        replace(whole, prepare=(main, main)),
        replace(whole, packed={"packed": 257}),
        replace(whole, packed=whole.scratch, scratch=whole.packed),
    ]
    assert len({rendered_sha256(each) for each in (whole, *others)}) == 1 + len(others)


@dataclass(frozen=True)
class Later(Launch):
    """A launch with a field that came later."""

    cluster_size: int = 1


Later.__name__ = Launch.__name__


def test_a_field_that_came_later_counts_where_it_is_used() -> None:
    launch, later = Launch("text", "f", "", (8,), (4,), ("output",)), Later("text", "f", "", (8,), (4,), ("output",))
    assert rendered_sha256(Instance(later)) == rendered_sha256(Instance(launch))
    assert rendered_sha256(Instance(replace(later, cluster_size=2))) != rendered_sha256(Instance(launch))


def _plain(launch: Launch) -> Launch:
    return replace(launch, source=f"text of '{launch.entry}'\n")
