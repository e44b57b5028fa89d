"""M-FAC (Frantar et al. 2021): WoodFisher's ranking and update, without forming the inverse."""

from chita.methods.matrix_free import matrix_free, matrix_free_memory
from chita.methods.method import Method
from chita.methods.surgeon import Surgeon

M_FAC = Method("m-fac", "fisher", Surgeon(matrix_free), memory=matrix_free_memory)
