"""What methods are made of: what several of them share, and the longer pieces of one. No method stands here."""
