#include "ops/cuda/hopper.h"

#include "base/cuda/device.h"
#include "base/error.h"
#include "ops/cuda/prefill/prefill_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// Queried from the running driver: the program is not linked against it.
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  constexpr unsigned kVersion = 12000;
  winnow::cuda::check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                       kVersion, cudaEnableDefault, &found),
                      "cuTensorMapEncodeTiled");
  require(found == cudaDriverEntryPointSuccess, "CUDA: the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<Encode>(function);
}

}  // namespace

bool has_wgmma() {
  int device = 0;
  int major = 0;
  winnow::cuda::check(cudaGetDevice(&device), "current device");
  winnow::cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                      "compute capability");
  return major == 9;
}

CUtensorMap slab_map(const Matrix<const bf16>& matrix, int box_rows) {
  static const Encode encode = find_encode();
  const cuuint64_t size[] = {matrix.cols, matrix.rows};
  const cuuint64_t stride[] = {matrix.stride * sizeof(bf16)};
  const cuuint32_t box[] = {kSlabChannels, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t step[] = {1, 1};
  CUtensorMap map;
  const CUresult code =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16*>(matrix.data), size,
             stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(code == CUDA_SUCCESS, "CUDA: boxes of a [{}, {}] matrix: error {}", matrix.rows,
          matrix.cols, static_cast<int>(code));
  return map;
}

}  // namespace winnow::ops::cuda
