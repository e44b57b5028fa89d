"""The pruning methods, one file for each system of the paper, and their registry."""

from __future__ import annotations

from collections.abc import Callable

from chita.errors import ChitaError
from chita.methods.cbs import CBS
from chita.methods.chita import AUTO, CHITA_BSO, CHITA_CD, chita_plus_plus
from chita.methods.l_obs import L_OBS
from chita.methods.m_fac import M_FAC
from chita.methods.magnitude import MAGNITUDE, MAGNITUDE_UNIFORM
from chita.methods.method import Curvature, Method
from chita.methods.obd import OBD
from chita.methods.obs import OBS
from chita.methods.woodfisher import WOODFISHER
from chita.methods.woodtaylor import WOODTAYLOR

CHITA = (AUTO, CHITA_CD, CHITA_BSO, chita_plus_plus(CHITA_BSO))
SURGEONS = (OBD, OBS, WOODFISHER, WOODTAYLOR, M_FAC)
METHODS: dict[str, Method] = {
    method.name: method for method in (*CHITA, MAGNITUDE, MAGNITUDE_UNIFORM, *SURGEONS, CBS, L_OBS)
}
SOLVERS: dict[str, Method] = {"bso": CHITA_BSO, "cd": CHITA_CD}

__all__ = ["METHODS", "SOLVERS", "Curvature", "Method", "able", "get_method"]


def get_method(name: str, solver: str | None = None) -> Method:
    """The method called `name`; `solver` names the single-stage method inside CHITA++."""
    if not isinstance(name, str) or name not in METHODS:
        raise ChitaError(f"method must be one of {sorted(METHODS)}, got {name!r}")
    if solver is None:
        return METHODS[name]
    if name != "chita++":
        raise ChitaError(f"solver={solver!r} is for method 'chita++' alone, not for {name!r}")
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise ChitaError(f"solver must be one of {sorted(SOLVERS)}, got {solver!r}")
    return chita_plus_plus(SOLVERS[solver])


def able(can: Callable[[Method], bool]) -> str:
    """The names of the methods that can do something, for whoever asked it of another one."""
    return ", ".join(sorted(name for name, method in METHODS.items() if can(method)))
