"""An algorithm bound to a model and data: what every backend runs, what it sends and what that costs."""
