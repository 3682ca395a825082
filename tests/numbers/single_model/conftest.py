"""Every numeric case runs on both backends; the general ones with everybody and with changing cohorts."""

import pytest

from tests.numbers.single_model.problem import EVERYBODY, SOME


@pytest.fixture(params=["serial", "vectorised"])
def backend(request):
    return request.param


@pytest.fixture(params=[EVERYBODY, SOME], ids=["everybody", "some"])
def cohorts(request):
    return request.param
