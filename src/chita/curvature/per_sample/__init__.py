"""Per-sample gradients: rows of A from one batched forward and backward pass.

A rule computes the gradients of one type of layer, for many mini-batches at once, from the inputs
of a call and the gradient of the losses with respect to its output. Each rule is one file:

==================  ==========================================================================
file                layers
==================  ==========================================================================
``linear.py``       ``torch.nn.Linear``: all weights of MLPs, of BERT and ViT from Hugging Face
``conv2d.py``       ``torch.nn.Conv2d``
``conv1d_hf.py``    ``transformers.pytorch_utils.Conv1D``: the linear layers of GPT-2
``any_layer.py``    every other layer, by ``torch.func``: other convolutions, embeddings, norms
``registry.py``     the registry of the rules
==================  ==========================================================================

`torch.nn.MultiheadAttention` computes with its weights directly, without calls of its submodules;
its rows come from plain autograd (`chita/curvature/gradient_rows.py`). The same holds for models
whose rows fail the checks of `chita/curvature/self_check.py`, which compare the rows of each run
with plain autograd: a wrong rule costs time but does not change the result.

`chita.register_gradient_rule` adds a rule; see `docs/howto/add_a_layer.md`.
"""

from chita.curvature.per_sample import conv1d_hf, conv2d, linear
from chita.curvature.per_sample.linear import row_products
from chita.curvature.per_sample.registry import Piece, Rule, by_row, register_gradient_rule
from chita.model.hooks import Call

__all__ = [
    "Call",
    "Piece",
    "Rule",
    "by_row",
    "conv1d_hf",
    "conv2d",
    "linear",
    "register_gradient_rule",
    "row_products",
]
