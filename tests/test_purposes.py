"""What kernels of language models compute, by their names, if they are in no operation."""

from __future__ import annotations

from pathlib import Path

import pytest

import mio2trace
from mio2trace.answer import of_profile, text
from mio2trace.findings.subject import Subject
from mio2trace.kernels.purposes import purpose
from tests.kineto_files import FIRST_US, kineto_file, launched, row

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
    events = [row("user_annotation", "step[DECODE bs=8]", 542, 542, FIRST_US, 200, External_id=1)]
    times = {"fused_moe_kernel": 60.0, "kernel_unified_attention_2d": 30.0, "x": 10.0}
    for place, (name, us) in enumerate(times.items()):
        ids = {"External_id": 10 + place} if has_ops else {}
        if has_ops:
            events.append(row("cpu_op", f"vllm::op_{place}", 542, 542, FIRST_US + 20 * place, 15, **ids))
        events += launched(70 + place, 20.0 * place + 1, us, name, wait=100 + 60 * place, **ids)
    (measures,) = mio2trace.analyse([kineto_file(tmp_path, events)]).run.measures
    section = of_profile(Subject(measures), "run")
    assert {part.primitive: part.ns for part in section.parts} == {"MoE": 60_000, "mha": 30_000, "": 10_000}
    lines = [line for line in text.block(section) if line.startswith("parts")]
    assert bool(lines) is not has_ops
    if lines:
        assert lines[0].split(maxsplit=1)[1].startswith("MoE 22.1 % of the step, ")
