"""auto: CHITA++ in which every stage is chosen by the held-out loss (`guard.py`)."""

from dataclasses import replace

from chita.methods.chita_bso import CHITA_BSO
from chita.methods.chita_plus_plus import chita_plus_plus

AUTO = replace(chita_plus_plus(CHITA_BSO), name="auto")
