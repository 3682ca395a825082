"""Asynchronous runs: the server does not wait for all, and a round is one version of the model."""
