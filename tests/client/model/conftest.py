"""Lower models that tests make."""

import pytest

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from tests.client.models import save
from tests.client.plans import Lowered


@pytest.fixture(scope="session")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> Lowered:
    folder = tmp_path_factory.mktemp("models")
    return lambda model: lower(read_model(save(model, folder)))
