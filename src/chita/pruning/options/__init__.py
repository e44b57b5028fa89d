"""The options of `chita.prune`, each declared once for the API, the configuration and the CLI."""
