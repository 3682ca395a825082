"""What one client does in a round, written for one client as pure functions."""
