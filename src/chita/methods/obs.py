"""OBS (Hassibi & Stork 1992): the full inverse Fisher, one weight at a time, exact."""

from chita.methods.method import Method
from chita.methods.one_by_one import OneByOne, one_by_one_memory
from chita.methods.without_first_order import WithoutFirstOrder

OBS = Method(
    "obs", "fisher", WithoutFirstOrder(OneByOne()), constrained=False, memory=one_by_one_memory
)
