"""`method="auto"`: candidates of a stage, and the search among them by the held-out loss."""
