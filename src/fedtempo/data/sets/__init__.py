"""One file for each published data set."""
