"""Other frameworks on the same work as FedTempo, each in an environment of its own, one round in turn."""
