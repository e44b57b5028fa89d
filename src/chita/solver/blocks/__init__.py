"""Problems cut into blocks: independent (algorithm 6), coupled, and many at once."""
