"""What a reproduction is made of, how it is run, and how its claims are judged."""
