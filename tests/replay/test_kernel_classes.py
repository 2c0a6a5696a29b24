"""Classes of kernels and effects of runtime calls, by names as profilers write them."""

import pytest

from planner.replay.recording.recorded_names import KERNEL_CLASSES, call_effect, is_communication, kernel_class

KERNELS = {
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)": "all-reduce",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce-scatter",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all-gather",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": "send/recv",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, ...)": "all-reduce",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false>>(Flash_fwd_params)": "attention",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4>(...)": "gemm",
    "nvjet_tst_128x256_64x4_2x1_v_bz_coopB_TNT": "gemm",
    "void cudnn::cnn::wgrad2d_grouped_direct_kernel<float>(...)": "convolution",
    "volta_scudnn_128x64_relu_interior_nn_v1": "convolution",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>": "optimizer",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(...)": "normalisation",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(...)": "elementwise",
    "split_embedding_codegen_forward_unweighted_kernel<c10::Half>(fbgemm_gpu::...)": "embedding",
    "void permute_pooled_embs_kernel<float>(...)": "embedding",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<...>>": "reduction",
    "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>(...)": "normalisation",
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, 0>(...)": "elementwise",
    "triton_poi_fused_add_0": "elementwise",
    "void at::native::elementwise_kernel<128, 2, {lambda(float)#1}>(int, {lambda(float)#1})": "elementwise",
    "spin": "other",
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_have_the_class_of_their_name(name):
    assert kernel_class(name) == KERNELS[name]


def test_copies_are_not_kernels_and_collectives_are_communication():
    assert kernel_class("Memcpy DtoH (Device -> Pageable)", "memcpy") == "memcpy"
    kinds = [kind for kind, _ in KERNEL_CLASSES]
    assert [kind for kind in kinds if is_communication(kind)] == kinds[:7]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("cudaLaunchKernel", "work"),
        ("cuLaunchKernelEx", "work"),
        ("hipExtModuleLaunchKernel", "work"),
        ("cudaGraphLaunch", "work"),
        ("cudaMemcpyAsync", "work"),
        ("cudaMemsetAsync", "work"),
        ("cudaEventRecordWithFlags", "record"),
        ("cudaStreamWaitEvent_ptsz", "stream_wait"),
        ("cudaStreamSynchronize", "stream_sync"),
        ("hipEventSynchronize", "event_sync"),
        ("cudaDeviceSynchronize", "device_sync"),
        ("cudaEventQuery", "nothing"),
        ("cudaStreamIsCapturing", "nothing"),
        ("aten::launch", "nothing"),
    ],
)
def test_calls_have_the_effect_of_their_name(name, what):
    assert call_effect(name) == what
