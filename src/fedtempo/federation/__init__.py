"""An algorithm bound to a model and data: what every backend runs."""
