"""FedTempo against hand-written loops and against its peers, on the same work."""
