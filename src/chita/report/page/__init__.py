"""`chita report`: one page, whole in itself, on what a run left in its folder."""
