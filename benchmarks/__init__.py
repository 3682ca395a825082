"""FedTempo against hand-written loops, on the same work."""
