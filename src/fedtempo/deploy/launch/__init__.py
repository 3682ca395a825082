"""Launching a deployment: the server's side of Flower's fleet, a node's side, and the commands that start them."""
