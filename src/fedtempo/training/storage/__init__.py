"""A stored run: its folder, its database, what binds a record to its run, and the one reader of it all."""
