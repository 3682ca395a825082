"""What the rest stands on and no reader of an algorithm needs: files, the terminal, optional packages, identities."""
