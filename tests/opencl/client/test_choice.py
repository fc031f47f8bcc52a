"""Test contexts of one model together on a real device: with and without fusion they compute what the model says."""

from pathlib import Path

import numpy as np

from gputune.cache import tier_of
from gputune.client.context.builder import Built
from gputune.client.context.context_runner import ContextRunner
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.importer import read_model
from gputune.client.model.reference import evaluate
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.task_search import device_limits
from gputune.core.identity import DeviceIdentity
from gputune.core.quirks import groups_at_once
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import Context
from tests.client.model.test_alternatives import two_blocks
from tests.client.models import save
from tests.shared_server import SharedServer


def test_fused_and_not_they_agree_with_the_reference_and_are_timed(server: SharedServer, tmp_path: Path) -> None:
    model = Alternatives(read_model(save(two_blocks(), tmp_path), {}))
    with server.connect() as client:
        device = DeviceIdentity.from_dict(client.device)
        limits = device_limits(device)
        outcomes = {one.key: one for one in (untuned(task, limits) for task in model.tasks)}
        tier = tier_of(device.name, device.compute_units, device.vendor, device.device_version)

        def write(built: Built, path: Path) -> None:
            programs, weights = built.programs, built.weights
            write_context(path, Context((built.graph,), programs, weights, client.device, tier.name, {}, {}, True))

        with ContextRunner(client, client, write) as runner:
            fused = model.plan_with(model.groups)
            contexts = [runner.load(plan, outcomes) for plan in (model.plan, fused)]
            contexts.append(runner.load(fused, outcomes, persistent=True))
            assert bool(contexts[2].graph.persistent) == (groups_at_once(device) > 0)
            inputs = {"x": np.random.default_rng(1).standard_normal((1, 8, 7, 5)).astype(np.float32)}
            (want,) = evaluate(model.plan, inputs).values()
            for context in contexts:
                (got,) = context.run_timed(inputs)[0].values()
                np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
            plain, by_group, persistent = runner.task_ns(contexts)
            assert len(contexts[1].graph.launches) == len(contexts[0].graph.launches) - len(model.groups)
            assert set(by_group) - set(plain) <= set(outcomes)
            assert set(persistent) == set(by_group), "a profile is of launches one by one"
            assert all(min(samples) > 0 for times in (plain, by_group) for samples in times.values())
            assert all(min(samples) > 0 for samples in runner.inference_ns(contexts))
