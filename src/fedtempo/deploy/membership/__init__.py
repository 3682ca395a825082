"""Who belongs to a deployment: keys and who is admitted by them, what nodes say they hold, and which of them agree."""
