"""Every single-model algorithm against numbers worked by hand and against a reference in plain numpy."""
