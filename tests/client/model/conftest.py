"""Read, simplify and lower models that tests make."""

from pathlib import Path

import pytest

from gputune.client.model.alternatives import Alternatives
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.passes import simplify
from tests.client.models import save
from tests.client.plans import Alternated, Lowered, Simplified


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def lowered(model_folder: Path) -> Lowered:
    return lambda model: lower(read_model(save(model, model_folder)))


@pytest.fixture(scope="session")
def simplified(model_folder: Path) -> Simplified:
    return lambda model: simplify(read_model(save(model, model_folder)))


@pytest.fixture(scope="session")
def alternated(model_folder: Path) -> Alternated:
    return lambda model: Alternatives(read_model(save(model, model_folder)))
