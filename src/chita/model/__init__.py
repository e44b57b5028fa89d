"""A torch model and its data as chita sees them."""
