"""The results published in the paper, for comparison with ours."""

from __future__ import annotations

from dataclasses import dataclass

# The network that ships with chita is not the paper's MLPNet, so its cells have another name.
EMBEDDED = "mlpnet-embedded"

NAMES = {  # the paper's names of the methods of the one-shot comparison, in our order
    "magnitude": "MP",
    "magnitude-uniform": "MP, uniform",
    "obd": "OBD",
    "obs": "OBS",
    "l-obs": "L-OBS",
    "woodfisher": "WF",
    "woodtaylor": "WoodTaylor",
    "m-fac": "M-FAC",
    "cbs": "CBS",
    "chita-cd": "CHITA-CD",
    "chita-bso": "CHITA",
    "chita++": "CHITA++",
}
DENSE = {"mlpnet": 93.97, "resnet20": 91.36, "mobilenetv1": 71.95, "resnet50": 77.01}
SPARSITIES = {
    "mlpnet": (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98),
    "resnet20": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    "mobilenetv1": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    "resnet50": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8),  # ours: fig:resnet50_acc states none
}
ACCURACY: dict[
    str, dict[str, tuple[float, ...]]
] = {  # tab:accuracy, in percent, at those sparsities
    "mlpnet": {
        "magnitude": (93.93, 93.78, 93.62, 92.89, 90.30, 83.64, 32.25),
        "woodfisher": (94.02, 93.82, 93.77, 93.57, 91.69, 85.54, 38.26),
        "cbs": (93.96, 93.96, 93.98, 93.90, 93.14, 88.92, 55.45),
        "chita-bso": (93.97, 93.94, 93.80, 93.59, 92.46, 88.09, 46.25),
        "chita++": (95.97, 95.93, 95.89, 95.80, 95.55, 94.70, 90.73),
    },
    "resnet20": {
        "magnitude": (90.77, 89.98, 88.44, 85.24, 78.79, 54.01, 11.79),
        "woodfisher": (91.37, 91.15, 90.23, 87.96, 81.05, 62.63, 11.49),
        "cbs": (91.35, 91.21, 90.58, 88.88, 81.84, 51.28, 13.68),
        "chita-bso": (91.37, 91.19, 90.60, 89.22, 84.12, 57.90, 15.60),
        "chita++": (91.25, 91.20, 91.04, 90.78, 90.38, 88.72, 79.32),
    },
    "mobilenetv1": {
        "magnitude": (71.60, 69.16, 62.61, 41.94, 6.78, 0.11),
        "woodfisher": (71.88, 71.15, 68.91, 60.90, 29.36, 0.24),
        "cbs": (71.88, 71.45, 70.21, 66.37, 55.11, 16.38),
        "chita-bso": (71.87, 71.50, 70.42, 67.30, 59.40, 29.78),
        "chita++": (71.86, 71.61, 70.99, 69.54, 66.42, 47.45),
    },
}
MFAC_TO_CHITA = 20  # fig:runtime: CHITA is up to 20 times as fast as M-FAC
WOODFISHER_TO_MFAC = 1000  # M-FAC is at least 1000 times as fast as WoodFisher and CBS
RIDGE_GAIN = 3.0  # fig:ridge3: the gain on MLPNet is about 3 percentage points of accuracy


def paper_network(name: str) -> str:
    """Return the paper's network that corresponds to a network of a benchmark."""
    return "mlpnet" if name == EMBEDDED else name


def paper_accuracy(network: str, method: str, sparsity: float) -> float | None:
    """Return the cell of tab:accuracy, or None if the paper has none."""
    network = paper_network(network)
    figures = ACCURACY.get(network, {}).get(method)
    if figures is None or sparsity not in SPARSITIES[network]:
        return None
    return figures[SPARSITIES[network].index(sparsity)]


@dataclass(frozen=True)
class Published:
    """One row of the paper's tables; only the rows of CHITA are the paper's own results.

    Attributes:
        method: the paper's name of the method.
        sparsity: in percent.
        accuracy: the accuracy of the sparse network, in percent.
        drop: (pruned - dense) / dense in percent; the dense networks of the methods differ.
        remaining: the remaining parameters, in millions.
    """

    method: str
    sparsity: float
    accuracy: float
    drop: float
    remaining: float


MOBILENETV1 = (
    Published("Incremental", 74.11, 67.70, -4.11, 1.09),
    Published("STR", 75.28, 68.35, -5.07, 1.04),
    Published("Global Magnitude", 75.28, 69.90, -2.92, 1.04),
    Published("WoodFisher", 75.28, 70.09, -2.65, 1.04),
    Published("CHITA", 75.28, 71.11, -1.23, 1.04),
    Published("Incremental", 89.03, 61.80, -12.46, 0.46),
    Published("STR", 89.01, 62.10, -13.75, 0.46),
    Published("Global Magnitude", 89.00, 63.02, -12.47, 0.46),
    Published("WoodFisher", 89.00, 63.87, -11.29, 0.46),
    Published("CHITA", 89.00, 67.68, -6.00, 0.46),
)
RESNET50 = (
    Published("GMP + LS", 90.00, 73.91, -3.62, 2.56),
    Published("Variational Dropout", 90.27, 73.84, -3.72, 2.49),
    Published("RigL + ERK", 90.00, 73.00, -4.94, 2.56),
    Published("SNFS + LS", 90.00, 72.90, -5.32, 2.56),
    Published("STR", 90.23, 74.31, -3.51, 2.49),
    Published("Global Magnitude", 90.00, 75.20, -2.42, 2.56),
    Published("DNW", 90.00, 74.00, -4.52, 2.56),
    Published("WoodFisher", 90.00, 75.21, -2.34, 2.56),
    Published("CHITA", 90.00, 75.29, -2.23, 2.56),
    Published("GMP", 95.00, 70.59, -7.95, 1.28),
    Published("Variational Dropout", 94.92, 69.41, -9.49, 1.30),
    Published("Variational Dropout", 94.94, 71.81, -6.36, 1.30),
    Published("RigL + ERK", 95.00, 70.00, -8.85, 1.28),
    Published("DNW", 95.00, 68.30, -11.31, 1.28),
    Published("STR", 94.80, 70.97, -7.84, 1.33),
    Published("STR", 95.03, 70.40, -8.58, 1.27),
    Published("Global Magnitude", 95.00, 71.79, -6.78, 1.28),
    Published("WoodFisher", 95.00, 72.12, -6.35, 1.28),
    Published("CHITA", 95.00, 73.46, -4.61, 1.28),
    Published("GMP + LS", 98.00, 57.90, -24.50, 0.51),
    Published("Variational Dropout", 98.57, 64.52, -15.87, 0.36),
    Published("DNW", 98.00, 58.20, -24.42, 0.51),
    Published("STR", 98.05, 61.46, -20.19, 0.50),
    Published("STR", 97.78, 62.84, -18.40, 0.57),
    Published("Global Magnitude", 98.00, 64.28, -16.53, 0.51),
    Published("WoodFisher", 98.00, 65.55, -14.88, 0.51),
    Published("CHITA", 98.00, 69.80, -9.36, 0.51),
)
TABLES = {
    "MobileNetV1 on ImageNet, as the paper states it (dense: 72.00)": MOBILENETV1,
    "ResNet50 on ImageNet, as the paper states it (dense: 77.01)": RESNET50,
}
