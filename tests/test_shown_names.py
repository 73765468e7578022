"""Names that fit into a column and differ where what they name does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from mio2trace.align.links import NONE
from mio2trace.answer import of_profile, text
from mio2trace.answer.content import KernelRow, OperationRow, ProblemRow, shown_names
from mio2trace.findings.subject import Subject
from mio2trace.kernels.names import SLICE_NAME, directions_of, distinct, read_options, short_kernel, slice_names
from mio2trace.kernels.purposes import purpose
from mio2trace.ops.operation import Launch
from mio2trace.outgoing import shortened, without_middle
from tests.kineto_files import FIRST_US, kineto_file, launched
from tests.kineto_files import row as event_row
from tests.test_operation_links import Maker

TEXTS = st.text("abcdefxyz0123_. ->", min_size=1, max_size=90)


def row(name: str, kind: Any = OperationRow, **fields: Any) -> Any:
    return kind(**{"name": name, "calls": 1, "ns": 1} | fields)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5, unique=True), st.integers(30, 60))
def test_operations_of_several_layers_differ(parts: list[tuple[str, str]], width: int) -> None:
    """Also where neither the operation's name nor its layer fits."""
    names = shown_names([row(name, layer=layer) for name, layer in parts], width)
    assert len({*names}) == len(parts)
    assert all(len(name) <= width for name in names)


def test_the_layer_is_shown_where_operations_read_the_same() -> None:
    layers = [f"MergedColumnParallelLinear_{number}" for number in (0, 15)]
    rows = [row("Gemm 15360x4096 -> 15360x24576", layer=layer) for layer in layers]
    assert shown_names(rows, 40) == ["Gemm 15360x... in Merged...lelLinear_0", "Gemm 15360x... in Merged...elLinear_15"]


def test_the_number_of_calls_is_shown_whatever_the_name_is_cut_to() -> None:
    """Of a log alone, whose problems have no times."""
    none = {"primitive": "conv", "calls": 1234, "ns": None}
    rows = [row(f"Conv fwd 1x{'512x' * 20}{at}", ProblemRow, **none) for at in "ab"]
    names = shown_names(rows, 46)
    assert all(name.endswith(" x 1,234") and len(name) <= 46 for name in names)
    assert len({*names}) == 2


def test_a_name_that_is_cut_does_not_look_like_the_beginning_of_another() -> None:
    """`matmul_16x128x256...` beside `matmul_16x128x256x1` shows what it has more."""
    name = "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1"
    rows = [row(name + end, KernelRow) for end in ("", "_swiglu")]
    assert shown_names(rows, 46) == [name, "_matmul_ogs_NN...16x128x256x1_swiglu"]


def test_sizes_stay_where_a_long_op_is_cut() -> None:
    """Gradients of data and of weights differ, and the sizes are whole."""
    none: dict[str, Any] = {"primitive": "conv", "calls": 6}
    rows = [row(f"aten::cudnn_convolution_backward_{of} 32x64x56x56", ProblemRow, **none) for of in ("input", "weight")]
    assert shown_names(rows, 45, count_calls=True) == [
        "aten::cudnn_c...ackward_input 32x64x56x56 x 6",
        "aten::cudnn_c...ckward_weight 32x64x56x56 x 6",
    ]


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=9),
    st.text("ab_", min_size=1, max_size=30),
    st.integers(12, 60),
)
def test_no_part_of_a_number_is_shown(sizes: list[int], head: str, width: int) -> None:
    """Of each number that is shown, all digits are."""
    name = head + "x".join(map(str, sizes))
    for shown in (shortened(name, width), without_middle(name, width), *shown_names([row(name, layer="")], width)):
        assert {*re.findall(r"\d+", shown)} <= {*map(str, sizes)}


@pytest.mark.parametrize("width", range(12, 60))
def test_names_that_differ_late_fit(width: int) -> None:
    names = ["worker0.1623143566756.pt.trace.json", "worker0.1623212756351.pt.trace.json"]
    shown = distinct(names, names, width)
    assert len({*shown}) == 2
    assert max(map(len, shown)) <= width


PIECES = st.sampled_from(
    [
        "void ", "at::native::", "(anonymous namespace)::", "vectorized_elementwise_kernel", "reduce_kernel", "<4, ",
        "float", "c10::Half", ", ", ">", "(int)", "MulFunctor", "BUnaryFunctor<", "_ZN", "7kentry", "12Rmsnorm2dFwd",
        "Cijk_Ailk_Bljk_", "HHS_BH_", "MT64x32x32_", "GLVWA4_", "GLVWA8_", " [clone .kd]", "#2", "...", " ", "k",
    ]
)  # fmt: skip
KERNELS = st.lists(st.lists(PIECES, max_size=30).map("".join), unique=True, max_size=8)


@given(KERNELS)
def test_slices_of_different_kernels_have_different_short_names(names: list[str]) -> None:
    found = slice_names(names)
    assert found.keys() == {*names}
    assert len({*found.values()}) == len(names)
    assert all(0 < len(name) <= SLICE_NAME for name in found.values())


FLOATS = "float, float, float"
CUTLASS = "cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x6_tn_align8"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic"),
        (
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT320x224x64_MI16x16x1_SN",
            "Cijk Alik_Bljk BBS_BH MT320x224x64",
        ),
        (
            f"void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<{FLOATS}, "
            "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int)",
            "MulFunctor (vectorized_elementwise_kernel)",
        ),
        (
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
            "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>>(int)",
            "direct_copy (elementwise_kernel)",
        ),
        (
            "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
            f"at::native::sum_functor<{FLOATS}>>>>(at::native::ReduceOp<float>)",
            "sum_functor (reduce_kernel)",
        ),
        ("_ZN7ck_tile6kentryILi2ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassEEEvv", "Rmsnorm2dFwd"),
        (
            "void ck_tile::kentry<1, ck_tile::gfx950_t, ck_tile::FmhaFwdKernel<ck_tile::Fmha<true>>>(float)",
            "FmhaFwdKernel",
        ),
        (f"void cutlass::Kernel2<{CUTLASS}>(Params)", CUTLASS),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int, void>>(Params)", "GemmUniversal"),
        ("Kernel2", "Kernel2"),
        ("void cutlass::Kernel<true, 3>(int)", "Kernel"),
        ("MIOpenConvUni", "MIOpenConvUni"),
    ],
)
def test_the_short_name_says_what_the_kernel_does(name: str, short: str) -> None:
    assert short_kernel(name) == short
    assert slice_names([name]) == {name: short}


def test_kernels_of_one_short_name_show_where_they_differ() -> None:
    head = "Cijk_Ailk_Bjlk_HHS_BH_MT64x128x32_MI16x16x16x1_SN_1LDSB0_"
    assert slice_names([f"{head}GLVWA{size}_GRPM1" for size in (4, 8)]) == {
        f"{head}GLVWA{size}_GRPM1": f"Cijk Ailk_Bjlk HHS_BH MT64x128x32 ..GLVWA{size}_GRPM1" for size in (4, 8)
    }


# -- Kernels under names that are in no table: build options, sizes of launch lines, their like elsewhere tell of them.


@pytest.mark.parametrize(
    ("options", "primitives", "directions"),
    [
        ("-DMLO_POOLING_OP_ID=1 -DMLO_POOLING_STRIDE1=2", ("pool",), ()),
        (" -D MIO_BN_N=2 -D MIO_BN_C=16", ("bnorm", "fusion"), ()),
        (" -DMLO_DIR_FORWARD=1 -DMLO_FILTER_SIZE0=5", ("conv", "fusion"), ("forward",)),
        (" -DMLO_DIR_FORWARD=0 -DMLO_FILTER_SIZE0=5", ("conv", "fusion"), ("backward-data", "backward-weights")),
        (" -DNUM_CH_PER_WG=1 -DNUM_IM_BLKS=3", ("conv",), ("forward", "backward-weights")),
    ],
)
def test_a_programs_macros_say_what_its_kernels_compute(
    options: str, primitives: tuple[str, ...], directions: tuple[str, ...]
) -> None:
    """Whatever the kernels are called."""
    stated = read_options(options)
    assert stated.meaning is not None
    assert stated.meaning.primitives == primitives
    assert directions_of(stated.meaning, stated) == directions


@pytest.mark.parametrize(
    ("options", "library"),
    [("-DMLO_GRP_SZ=64", True), ("-D MIOPEN_USE_FP16=0", True), ("-DBIG_MLO=1", False), ("-cl-std=CL1.2", False)],
)
def test_mios_macros_are_known_with_and_without_a_space(options: str, library: bool) -> None:
    """MIOpen writes ``-DMLO_X=1``."""
    assert read_options(options).library is library
    assert read_options("-cl-std=CL1.2").meaning is None


def test_a_kernel_of_an_unknown_name_has_the_size_of_a_launch_that_no_other_has() -> None:
    """The log printed another name for it; another size is another kernel."""
    maker = Maker()
    for number in range(3):
        size = (512 << number, 1, 1)
        of = maker.call("conv", launches=(Launch(line=3, name="MIOpenConvUni", gws=size),))
        maker.kernel("kernel_4cd6cd31025b", of=of, grid=size)
        maker.kernel("relu_float", grid=(64, 1, 1))
    assert list(maker.links().operation_of) == [0, NONE, 1, NONE, 2, NONE]


# -- What kernels of language models compute, by their names, if they are in no operation.


NAMES = {
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu": "MoE",
    "void vllm::moe::topkGatingSoftmax<float, 8, 64>(float const*)": "MoE",
    "void vllm::moe::moe_align_block_size_kernel<int>(int*)": "MoE",
    "fused_moe_kernel": "MoE",
    "kernel_unified_attention_3d": "mha",
    "void paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16>(int)": "mha",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>(flash::Flash_fwd_params)": "mha",
    "_ZN7ck_tile6kentryILi1ENS_13FmhaFwdKernelINS_15BlockFmhaEEEEEvT0_": "mha",
    "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausal": "mha",
    "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16>(int)": "KV cache",
    "void store_kvcache<128l>(int)": "KV cache",
    "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)": "rope",
    "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(int)": "norm",
    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineEEEEEvT0_": "norm",
    "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>(float*)": "sampling",
    "void vllm::act_and_mul_kernel<c10::BFloat16>(int)": "activation",
    "void mul_mat_vec_q<(ggml_type)12, 1, false, false>(void const*)": "gemm",
    "void rms_norm_f32<1024, true, false>(float const*)": "norm",
    # the names of ops in a fusion; names with a meaning; names that tell nothing
    "triton_poi_fused_constant_pad_nd_moe_forward_0": "",
    "triton_red_fused_rms_norm_1": "",
    "moefinalize_allreduce_fusion_kernel_oneshot_lamport": "",
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_attention": "",
    "void at::native::elementwise_kernel<128, 4>(int)": "",
    "kernel": "",
    # words that end or begin like them
    "deviceTensorOperation": "", "VectorOperatorKernel": "", "getPropertyKernel": "", "microPerfTest": "",
    "upsampling_bilinear": "", "void Downsampling<float>(int)": "", "resampling_2d": "",
    "fusedQKNormRopeKernel": "rope", "kn_mrope_3c": "rope", "applyROPE": "rope", "ropeKernel": "rope",
    "topPSamplingKernel": "sampling",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_tells_what_a_kernel_computes(name: str) -> None:
    assert purpose(name) == NAMES[name]


@pytest.mark.parametrize("has_ops", [False, True])
def test_the_answer_has_the_parts_of_kernels_in_no_operation(has_ops: bool, tmp_path: Path) -> None:
    """Also of ops that have no family of their own; the line is there if most kernel time is in no operation."""
    events = [event_row("user_annotation", "step[DECODE bs=8]", 542, 542, FIRST_US, 200, External_id=1)]
    times = {"fused_moe_kernel": 60.0, "kernel_unified_attention_2d": 30.0, "x": 10.0}
    for place, (name, us) in enumerate(times.items()):
        ids = {"External_id": 10 + place} if has_ops else {}
        if has_ops:
            events.append(event_row("cpu_op", f"vllm::op_{place}", 542, 542, FIRST_US + 20 * place, 15, **ids))
        events += launched(70 + place, 20.0 * place + 1, us, name, wait=100 + 60 * place, **ids)
    (measures,) = mio2trace.analyse([kineto_file(tmp_path, events)]).run.measures
    section = of_profile(Subject(measures), "run")
    assert {part.primitive: part.ns for part in section.parts} == {"MoE": 60_000, "mha": 30_000, "": 10_000}
    lines = [line for line in text.block(section) if line.startswith("parts")]
    assert bool(lines) is not has_ops
    if lines:
        assert lines[0].split(maxsplit=1)[1].startswith("MoE 22.1 % of the step, ")
