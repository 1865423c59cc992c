// Decode attention. A warp that has all of a row writes its output. A second kernel reduces the
// parts of the others: that costs less than waiting in this kernel for the last part to arrive.
#include "base/cuda/launch.cuh"
#include "ops/cuda/decode/decode_parts.cuh"
#include "ops/cuda/decode/decode_run.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = kDecodeWarps * kWarpSize;

// A tile of 8- or 4-bit codes fits into registers; a bf16 tile would cost one resident block per
// multiprocessor.
template <class Codes>
constexpr bool kReadsAhead = kCodeBits<Codes> <= 8;

// Q4Format::kRotated.
template <class Codes>
constexpr bool kAreRotated = kCodeBits<Codes> == 4;

// Blocks per multiprocessor; registers must suffice for that many.
template <int D>
constexpr int kResidentBlocks = D <= 80 ? 4 : 3;

template <class Codes, int D>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<D>)
    attention_kernel(const __grid_constant__ DecodeArguments arguments) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ StageState<tile_pages(D)> states[kDecodeWarps][stages(D, kCodeBits<Codes>)];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int worker = static_cast<int>(blockIdx.x) * kDecodeWarps + warp;
  const int group = arguments.group;
  const DecodePlan::View& plan = arguments.plan;
  RunAttention<Codes, D, kReadsAhead<Codes>>(arguments, plan.runs[worker],
                                             memory + warp * warp_bytes(D, kCodeBits<Codes>, group),
                                             states[warp])
      .run([&](int row, const auto& attention, bool whole) {
        if (whole && writes_whole_rows(arguments, kAreRotated<Codes>)) {
          attention.each_quad(group, [&](int quad, const float4& out, float sum) {
            write_output(arguments, std::size_t(row) * group * (D / 4) + quad,
                         output_of({.sum = sum, .out = out}));
          });
          return;
        }
        const std::size_t part = part_of(worker, row);
        attention.write(reinterpret_cast<float4*>(plan.partial_out) + part * group * (D / 4),
                        plan.partial_sums + part * group, group);
      });
}

using Kernel = void (*)(DecodeArguments);

static_assert(Bf16Codes::kWeightExponent == part_exponent(EntryFormat::bf16));
static_assert(F8Codes::kWeightExponent == part_exponent(EntryFormat::f8e4m3));
static_assert(I8Codes::kWeightExponent == part_exponent(EntryFormat::i8));
static_assert(Q4Codes::kWeightExponent == part_exponent(EntryFormat::q4));

Kernel kernel_for(EntryFormat format, int head_dim) {
  return with_shape(format, head_dim, [&]<EntryFormat kType, int D>() -> Kernel {
    return attention_kernel<CodesOf<kType>, D>;
  });
}

int shared_bytes(EntryFormat format, int head_dim, int group) {
  return with_shape(format, head_dim, [group]<EntryFormat kType, int D>() {
    return kDecodeWarps * warp_bytes(D, kCodeBits<CodesOf<kType>>, group);
  });
}

}  // namespace

int resident_workers(EntryFormat format, int head_dim, int group) {
  const Kernel kernel = kernel_for(format, head_dim);
  const int shared = shared_bytes(format, head_dim, group);
  int blocks = 0;
  winnow::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           shared_bytes(format, head_dim, kMostOwnGroup)),
                      "shared memory of decode attention");
  winnow::cuda::check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, shared),
      "blocks of decode attention");
  return blocks * winnow::cuda::multiprocessor_count() * kDecodeWarps;
}

void launch_attention(EntryFormat format, int head_dim, const DecodeArguments& arguments,
                      cudaStream_t stream) {
  winnow::cuda::launch(kernel_for(format, head_dim), arguments.plan.workers / kDecodeWarps,
                       kThreads, shared_bytes(format, head_dim, arguments.group), stream,
                       arguments.entries.settled, arguments);
}

}  // namespace winnow::ops::cuda
