"""The pruning methods, one file for each system of the paper, and their registry."""

from chita.methods.alps import ALPS
from chita.methods.cbs import CBS
from chita.methods.chita import AUTO, CHITA_BSO, CHITA_CD, CHITA_PLUS_PLUS
from chita.methods.chita_both import CHITA_BOTH
from chita.methods.chita_layer import CHITA_LAYER
from chita.methods.l_obs import L_OBS
from chita.methods.lamp import LAMP
from chita.methods.m_fac import M_FAC
from chita.methods.magnitude import MAGNITUDE, MAGNITUDE_UNIFORM
from chita.methods.obd import OBD
from chita.methods.obs import OBS
from chita.methods.registry import (
    METHODS,
    Method,
    get_method,
    method_names,
    methods_where,
    register_method,
)
from chita.methods.ria import RIA
from chita.methods.sparsegpt import SPARSEGPT
from chita.methods.wanda import WANDA
from chita.methods.woodfisher import WOODFISHER
from chita.methods.woodtaylor import WOODTAYLOR

__all__ = [
    "BUILT_IN",
    "METHODS",
    "Method",
    "get_method",
    "method_names",
    "methods_where",
    "register_method",
]

CHITA = (AUTO, CHITA_CD, CHITA_BSO, CHITA_PLUS_PLUS)
SURGEONS = (OBD, OBS, WOODFISHER, WOODTAYLOR, M_FAC)
LAYER_WISE = (L_OBS, CHITA_LAYER, CHITA_BOTH, WANDA, RIA, SPARSEGPT, ALPS)
BUILT_IN = tuple(
    register_method(method).name
    for method in (*CHITA, MAGNITUDE, MAGNITUDE_UNIFORM, LAMP, *SURGEONS, CBS, *LAYER_WISE)
)
