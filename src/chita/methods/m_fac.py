"""M-FAC (Frantar et al. 2021): WoodFisher's ranking and update, without forming the inverse."""

from chita.methods.method import Method
from chita.surgeon.matrix_free import matrix_free, matrix_free_memory
from chita.surgeon.surgeon import Surgeon

M_FAC = Method("m-fac", "fisher", Surgeon(matrix_free), memory=matrix_free_memory)
