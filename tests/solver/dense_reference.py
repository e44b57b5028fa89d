"""The problem and its solutions by dense numpy algebra; nothing here uses the solver's code."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class Dense:
    """1/2 |A (w - w0) + alpha e|^2 + (n lam / 2) |w - w0|^2, as docs of `chita.solve` state it."""

    A: Array
    w0: Array
    lam: float
    alpha: float

    def objective(self, w: Array) -> float:
        n = len(self.A)
        residual = self.A @ (w - self.w0) + self.alpha * np.ones(n)
        return float(0.5 * residual @ residual + 0.5 * n * self.lam * ((w - self.w0) ** 2).sum())

    def on(self, w: Array, support: Index) -> Array:
        """w on a support, zero elsewhere."""
        kept = np.zeros_like(w)
        kept[support] = w[support]
        return kept

    def minimiser(self, support: Index, fixed: Array | None = None) -> Array:
        """The minimiser over the weights of a support, all others fixed (at zero by default).

        The ridge is n lam additional rows of least squares: no normal equations, no Woodbury.
        """
        n, k = len(self.A), len(support)
        w = np.zeros_like(self.w0) if fixed is None else fixed.copy()
        w[support] = self.w0[support]
        residual = self.A @ (w - self.w0) + self.alpha
        rows = np.vstack([self.A[:, support], np.sqrt(n * self.lam) * np.eye(k)])
        right = -np.concatenate([residual, np.zeros(k)])
        w[support] += np.linalg.lstsq(rows, right, rcond=1e-13)[0]
        return w

    def largest(self, k: int) -> Index:
        """The places of the k largest weights."""
        return np.sort(np.argsort(-np.abs(self.w0), kind="stable")[:k])

    def brute_force(self, k: int) -> float:
        """The least objective over all supports of size k."""
        supports = (np.array(s, dtype=np.int64) for s in combinations(range(len(self.w0)), k))
        return min(self.objective(self.minimiser(support)) for support in supports)

    def best_between(self, one: Array, other: Array) -> Array:
        """The best point on the segment from `one` to `other`."""
        e = other - one
        slope = (self.A @ e) @ (self.A @ (one - self.w0) + self.alpha)
        slope += len(self.A) * self.lam * e @ (one - self.w0)
        curvature = (self.A @ e) @ (self.A @ e) + len(self.A) * self.lam * e @ e
        return one + float(np.clip(-slope / curvature, 0, 1)) * e

    def best_steps(self, w: Array, ways: list[Array]) -> Array:
        """w plus the best combination of some ways to go, each (p,)."""
        n = len(self.A)
        E = np.stack(ways, axis=1)
        rows = np.vstack([self.A @ E, np.sqrt(n * self.lam) * E])
        d = w - self.w0
        right = -np.concatenate([self.A @ d + self.alpha, np.sqrt(n * self.lam) * d])
        return w + E @ np.linalg.lstsq(rows, right, rcond=1e-13)[0]


def apart(dense: Dense, support: Index, blocks: list[Index]) -> Array:
    """Algorithm 6 on a support: each block by itself, all others at w0, none in the global system.

    Together they are drawn back to the best point of the line from w0 on the support, if they end
    above the magnitude solution.
    """
    w = np.zeros_like(dense.w0)
    for block in blocks:
        kept = np.intersect1d(block, support)
        alone = dense.w0.copy()
        alone[block] = 0.0
        w[block] = dense.minimiser(kept, alone)[block]
    start = dense.on(dense.w0, dense.largest(len(support)))
    if dense.objective(w) <= dense.objective(start):
        return w
    between = dense.best_between(dense.on(dense.w0, support), w)
    return min(between, start, key=dense.objective)


def coupled_sweep(dense: Dense, w: Array, support: Index, batches: list[list[Index]]) -> Array:
    """One sweep of coupled blocks on a fixed support: the blocks of a batch are solved from the
    same point, and go together as far as is best."""
    for batch in batches:
        targets = [dense.minimiser(np.intersect1d(block, support), w) for block in batch]
        ways = [target - w for target in targets]
        w = dense.best_steps(w, [e for e in ways if np.abs(e).max() > 0])
    return w
