"""Reports of results: console tables, figures and the HTML page."""
