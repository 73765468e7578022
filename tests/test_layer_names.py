"""Kernels that are named after a type of layer, and what that says where times leave a choice."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from mio2trace.align import NONE, align
from mio2trace.align.layers.caffe.names import contradicts, types_of
from mio2trace.model.log import Direction
from mio2trace.notes import Notes
from tests.synthetic_run import MS, US, Kernel, Layer, make_run


@pytest.mark.parametrize(
    ("name", "layer_type", "direction", "odd"),
    [
        ("max_pool_forward_float", "Pooling", "forward", False),
        ("max_pool_forward_float", "Pooling", "backward", True),
        ("max_pool_forward_float", "ReLU", "forward", True),
        ("im2col_float", "Deconvolution", "backward", False),
        ("XgemmDirectTN", "InnerProduct", "forward", False),
        ("XgemmDirectTN", "Softmax", "forward", True),
        ("fillbuffer_float", "Softmax", "forward", False),
        ("max_pool_forward_float", "", "forward", False),
        ("mloPoolingG", "Pooling", "forward", False),
        ("mloPoolingG", "Convolution", "forward", True),
        ("MIOpenNeuronFwd", "ReLU", "forward", False),
        ("MIOpenNeuronFwd", "ReLU", "backward", True),
        ("SoftmaxBackward", "", "forward", True),
        ("OpTensorFwdBias", "Convolution", "backward", False),
        ("MIOpenCvFwd11x11", "Convolution", "backward", False),
    ],
)
def test_a_name_contradicts_types_and_directions(name: str, layer_type: str, direction: Direction, odd: bool) -> None:
    """Helpers are named after none; a layer of which nothing tells the type may have any kernel."""
    assert contradicts(name, types_of("res2a", layer_type), direction) is odd


@pytest.mark.parametrize(
    ("name", "layer", "odd"),
    [
        ("mloPoolingG", "relu5", True),
        ("mloPoolingG", "pool5", False),
        ("mloPoolingG", "inception_3a/pool", False),
        ("MIOpenConvUni", "inception_3a/pool_proj", False),
        ("mloPoolingG", "res2a", False),
        ("MIOpenActiveFwdLite", "conv5", True),
        ("MIOpenActiveFwdLite", "conv1_relu", False),
        ("MIOpenBatchNormFwdInferSpatialEst", "bn_relu_conv1", False),
        ("OpTensorFwdBias", "relu4", True),
        ("OpTensorFwdBias", "fc6", False),
        ("MIOpenLRNAcrossChannels4", "norm1", False),
        ("MIOpenNeuronFwd", "lstm1", False),
        ("mloPoolingG", "lstm1", True),
    ],
)
def test_where_the_log_tells_no_type_a_layers_name_does(name: str, layer: str, odd: bool) -> None:
    """By each of its words; a type that the log tells is the layer's."""
    assert contradicts(name, types_of(layer, ""), "forward") is odd
    assert types_of(layer, "Pooling") == {"Pooling"}


@pytest.mark.parametrize(
    ("name", "odd"),
    [("MIOpenNeuronFwd", True), ("mloPoolingG", False), ("OpTensorLeadingOnes", False), ("MIOpenConvUni", False)],
)
def test_a_net_that_names_a_type_names_all_of_it(name: str, odd: bool) -> None:
    """Where `res2a_relu` is a layer, `res2a` is none; convolutions have any name, and poolings that no layer is named
    after may be in one without words."""
    named = types_of("conv1", "") | types_of("res2a_relu", "")
    assert contradicts(name, types_of("res2a", ""), "forward", named) is odd
    assert not contradicts(name, types_of("res2a", ""), "forward")


def test_names_divide_two_layers_that_times_cannot() -> None:
    """Printed times that are a little off leave the kernel between two layers to either; its name does not."""
    kernels = [Kernel(name=name, ns=100 * US) for name in ("im2col_float", "XgemmDirectTN", "relu_forward_float")]
    net = [
        Layer(name="conv", forward=kernels[:2]),
        Layer(name="relu", forward=kernels[2:]),
        Layer(name="last", forward=[Kernel(name="XgemmDirectTN", ns=5 * MS)]),
    ]
    run = make_run(Random(4), net, marks=False, warm_up=False)
    types = {"conv": "Convolution", "relu": "ReLU", "last": "InnerProduct"}
    # The first layer's printed time is short of its second kernel, the second layer's holds both.
    times = {"conv": -100 * US, "relu": 100 * US, "last": 0}
    log = msgspec.structs.replace(
        run.log,
        net=tuple(msgspec.structs.replace(layer, type=types[layer.layer]) for layer in run.log.net),
        layers=tuple(
            msgspec.structs.replace(layer, printed_ns=layer.printed_ns + times[layer.layer])
            if layer.direction == "forward"
            else layer
            for layer in run.log.layers
        ),
    )
    links = align(run.profile, [log], Notes()).links
    for position, place in enumerate(run.places):
        if place is not None and place[0] > 0:
            assert links.run_of[position] != NONE
            assert links.runs[links.run_of[position]].layer == place[2]
