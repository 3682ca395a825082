"""Loading a data set by its name."""

import pytest

from fedtempo.errors import ConfigError


def test_an_unknown_setting_and_an_unknown_name_are_named(tmp_path, tiny_load):
    with pytest.raises(ConfigError, match="no setting 'rotation'; it takes labels, test_drawings, rotations"):
        tiny_load("omniglot", rotation=True)
    with pytest.raises(ConfigError, match="Did you mean 'mnist'"):
        tiny_load("mnits")
