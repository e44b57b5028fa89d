import torch

from chita.zoo import ResNet50


def torchvision_shapes() -> dict[str, tuple[int, ...]]:
    """Built from the scheme of torchvision's names."""
    shapes: dict[str, tuple[int, ...]] = {}

    def pair(conv: str, bn: str, shape: tuple[int, ...]) -> None:
        shapes[f"{conv}.weight"] = shape
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{bn}.{part}"] = shape[:1]
        shapes[f"{bn}.num_batches_tracked"] = ()

    pair("conv1", "bn1", (64, 3, 7, 7))
    channels = 64
    for layer, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
        for block in range(blocks):
            name = f"layer{layer}.{block}"
            pair(f"{name}.conv1", f"{name}.bn1", (width, channels, 1, 1))
            pair(f"{name}.conv2", f"{name}.bn2", (width, width, 3, 3))
            pair(f"{name}.conv3", f"{name}.bn3", (4 * width, width, 1, 1))
            if block == 0:
                downsample = f"{name}.downsample"
                pair(f"{downsample}.0", f"{downsample}.1", (4 * width, channels, 1, 1))
            channels = 4 * width
    return shapes | {"fc.weight": (1000, 2048), "fc.bias": (1000,)}


def test_keys_and_shapes_are_torchvisions() -> None:
    own = {name: tuple(tensor.shape) for name, tensor in ResNet50().state_dict().items()}
    assert list(own.items()) == list(torchvision_shapes().items())
    assert len(own) == 320


def test_parameters() -> None:
    model = ResNet50()
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032


def test_strides_are_those_of_the_3_x_3_convolutions() -> None:
    strided = {
        name: module.kernel_size[0]
        for name, module in ResNet50().named_modules()
        if isinstance(module, torch.nn.Conv2d) and module.stride == (2, 2)
    }
    expected = {"conv1": 7}
    for layer in (2, 3, 4):
        expected |= {f"layer{layer}.0.conv2": 3, f"layer{layer}.0.downsample.0": 1}
    assert strided == expected


def test_outputs() -> None:
    model = ResNet50().eval()
    seen = []
    for layer in (model.layer1, model.layer2, model.layer3, model.layer4):
        layer.register_forward_hook(lambda module, args, output: seen.append(output.shape[1:]))
    with torch.no_grad():
        assert model(torch.rand(1, 3, 64, 64)).shape == (1, 1000)
    assert seen == [(256, 16, 16), (512, 8, 8), (1024, 4, 4), (2048, 2, 2)]
