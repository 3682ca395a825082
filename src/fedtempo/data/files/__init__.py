"""Files of data sets: which there are, where they lie, how they are fetched, checked and read."""
