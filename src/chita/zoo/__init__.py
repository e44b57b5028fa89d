"""Networks that come with chita: their models, weights, data and training recipes."""

from chita.zoo.find_trained import find_trained
from chita.zoo.given_network import find_network
from chita.zoo.mlpnet import MLPNet
from chita.zoo.mobilenetv1 import MobileNetV1, MobileNetV1Folded
from chita.zoo.networks import NETWORKS, Embedded, Network, get
from chita.zoo.resnet20 import ResNet20
from chita.zoo.resnet50 import ResNet50
from chita.zoo.trained import Trained, open_trained

__all__ = [
    "NETWORKS",
    "Embedded",
    "MLPNet",
    "MobileNetV1",
    "MobileNetV1Folded",
    "Network",
    "ResNet20",
    "ResNet50",
    "Trained",
    "find_network",
    "find_trained",
    "get",
    "open_trained",
]
