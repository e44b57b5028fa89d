"""What the paper states on gradual pruning: table:gradualpruning and table:resnet50gradual."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One row of the paper's tables; all but CHITA's the paper took from others.

    Attributes:
        method: as the paper writes it.
        sparsity: in percent.
        accuracy: of the sparse network, in percent.
        drop: (pruned - dense) / dense in percent; the methods have dense networks of their own.
        remaining: parameters, in millions.
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
