"""Replace Softmax: maximum and sum in one pass, after Milakov, Gimelshein (2018), arXiv:1805.02867.

It takes the stock family's problems, and has its reference, work and tolerance. Problems for which it has no kernel are
left to the stock family.
"""

from gputune.kernels.family import DeviceLimits, Instance, Launch
from gputune.kernels.ops.softmax import SoftmaxFamily, SoftmaxProblem
from gputune.kernels.space import Configuration, DeviceLimit, Parameter, TuningSpace
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import GROUP_SIZES, round_up


class OnlineSoftmaxFamily(SoftmaxFamily):
    """One template of its own: a work-item for each softmax."""

    def space(self, problem: SoftmaxProblem, limits: DeviceLimits) -> TuningSpace:
        if not _is_plain(problem):
            return super().space(problem, limits)
        most = min(limits.max_work_group_size, limits.max_work_item_sizes[0])
        return TuningSpace(
            (Parameter("DIMX", GROUP_SIZES, "softmaxes of a work-group"),),
            (
                DeviceLimit(
                    ("DIMX",), lambda across: across <= most, f"DIMX must not exceed the device's limit of {most}"
                ),
            ),
        )

    def default(self, problem: SoftmaxProblem, limits: DeviceLimits) -> dict[str, int]:
        return {"DIMX": 1} if _is_plain(problem) else super().default(problem, limits)

    def guesses(self, problem: SoftmaxProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        if not _is_plain(problem):
            return super().starters(problem, limits)
        return [one for one in ({"DIMX": 16}, {"DIMX": 4}) if not self.space(problem, limits).violations(one)]

    def render(self, problem: SoftmaxProblem, configuration: Configuration) -> Instance:
        if not _is_plain(problem):
            return super().render(problem, configuration)
        sizes = {"OUTER": problem.outer, "AXIS": problem.axis, "INNER": problem.inner}
        main = Launch(
            source=template("softmax_online.cl", __package__),
            entry="softmax_online",
            options=build_options(sizes | dict(configuration)),
            global_size=(round_up(problem.outer * problem.inner, configuration["DIMX"]),),
            local_size=(configuration["DIMX"],),
            arguments=("input", "output"),
        )
        return Instance(main)


def _is_plain(problem: SoftmaxProblem) -> bool:
    """Whether it is a softmax and nothing else, such as a logarithm of one."""
    return problem == SoftmaxProblem(problem.outer, problem.axis, problem.inner)


FAMILY = OnlineSoftmaxFamily()
