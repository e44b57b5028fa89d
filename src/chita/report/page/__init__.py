"""`chita report`: one self-contained HTML page about the results in a run folder."""
