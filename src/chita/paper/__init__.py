"""The paper's tables and figures, made again: `chita bench NAME`."""
