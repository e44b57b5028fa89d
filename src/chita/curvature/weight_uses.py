"""Find the weights whose gradient is known, from autograd's graph, to come from their module alone.

The rules in `per_sample/` compute the gradient that a weight gets through the calls of its module.
If the graph shows that the products of these calls are its only uses, this is its whole gradient,
and plain autograd does not have to compute it a second time for comparison.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from chita.curvature.per_sample.registry import is_built_in, rule_for
from chita.model.hooks import Call
from chita.model.weights import Weight

VIEWS = ("ViewBackward0", "UnsafeViewBackward0")
PRODUCTS = ("ConvolutionBackward0", "AddmmBackward0", "MmBackward0")
TRANSPOSED = "TBackward0"

Users = dict[Node, list[Node]]  # for each node of a graph, the nodes that pass a gradient to it


def known_weights(total: Tensor, calls: Iterable[Call], weights: Sequence[Weight]) -> set[str]:
    """Return the names of the weights that only the products of the recorded calls use.

    Args:
        total: the scalar that is differentiated.
        calls: the recorded calls of the modules that own the weights.
        weights: the weights to examine.
    """
    users = _users(total)
    expected: dict[str, list[Node | None]] = defaultdict(list)
    for call in calls:
        for weight in call.owner.owned.values():
            expected[weight.name].append(_use(call, weight, users))
    return {weight.name for weight in weights if _is_known(weight, expected[weight.name], users)}


def _is_known(weight: Weight, expected: Sequence[Node | None], users: Users) -> bool:
    """Return whether the uses of a weight are the expected ones; None is a use that differs."""
    if weight.parameter._backward_hooks:  # a hook may change the gradient
        return False
    found = users.get(get_gradient_edge(weight.parameter).node, [])
    return len(found) == len(expected) and set(found) == set(expected)


def _users(total: Tensor) -> Users:
    """Return the users of all nodes that the gradient of `total` reaches."""
    root = get_gradient_edge(total).node
    users: Users = {root: []}
    left = [root]
    while left:
        node = left.pop()
        for child in _children(node):
            if child not in users:
                users[child] = []
                left.append(child)
            users[child].append(node)
    return users


def _children(node: Node) -> Iterator[Node]:
    return (child for child, _ in node.next_functions if child is not None)


def _use(call: Call, weight: Weight, users: Users) -> Node | None:
    """Return the node that reads a weight in a call; None if the call is not a plain product.

    The output must be the product, possibly as a view, and the product must read the weight once,
    possibly transposed. Nothing else may use the values in between.
    """
    rule = rule_for(call.owner.module)
    if rule is None or not is_built_in(rule):
        return None
    product = call.output.node
    while product.name() in VIEWS:
        product = next(_children(product))
        if len(users.get(product, [])) != 1:
            return None
    if product.name() not in PRODUCTS:
        return None
    leaf = get_gradient_edge(weight.parameter).node
    reading = [product] if leaf in _children(product) else []
    for child in _children(product):
        if (
            child.name() == TRANSPOSED
            and leaf in _children(child)
            and users.get(child) == [product]
        ):
            reading.append(child)
    return reading[0] if len(reading) == 1 else None
