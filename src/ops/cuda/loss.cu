#include <cuda_bf16.h>

#include "base/cuda/device.h"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/loss.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

/// Sums over a row relative to the largest logit so far: of exp(x - largest), and of the same times
/// the `difference` given with x.
struct RunningSum {
  float largest = -INFINITY;
  float sum = 0.0F;
  float difference = 0.0F;

  __device__ void add(float x, float with) {
    if (x > largest) {
      const float factor = __expf(largest - x);
      sum *= factor;
      difference *= factor;
      largest = x;
    }
    const float weight = __expf(x - largest);
    sum += weight;
    difference += weight * with;
  }

  __device__ void join(const RunningSum& other) {
    const float both = fmaxf(largest, other.largest);
    if (both == -INFINITY) {
      return;  // both are empty
    }
    const float mine = __expf(largest - both);
    const float others = __expf(other.largest - both);
    sum = sum * mine + other.sum * others;
    difference = difference * mine + other.difference * others;
    largest = both;
  }

  [[nodiscard]] __device__ float normalizer() const { return largest + logf(sum); }
};

/// The combined sums of all threads of a block, returned to each. `memory`: one per sum.
__device__ RunningSum join_block(RunningSum x, RunningSum (&memory)[kWarps]) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    x.join({__shfl_xor_sync(0xFFFFFFFFU, x.largest, step),
            __shfl_xor_sync(0xFFFFFFFFU, x.sum, step),
            __shfl_xor_sync(0xFFFFFFFFU, x.difference, step)});
  }
  if (threadIdx.x % 32 == 0) {
    memory[threadIdx.x / 32] = x;
  }
  __syncthreads();
  x = memory[0];
  for (int i = 1; i < kWarps; ++i) {
    x.join(memory[i]);
  }
  return x;
}

/// body(first column) for groups of 8 columns; the last group may extend into the padding.
template <class Body>
__device__ void for_columns(int vocab, const Body& body) {
  for (int column = threadIdx.x * 8; column < vocab; column += kThreads * 8) {
    body(column);
  }
}

__device__ void clear_row(bf16* row, int vocab) {
  for_columns(vocab, [&](int column) { store_eight(row + column, Eight{}); });
}

__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(const __grid_constant__ LossRows rows, const std::int32_t* targets) {
  __shared__ RunningSum memory[kWarps];
  const std::size_t first = std::size_t{blockIdx.x} * rows.stride;
  const float* logits = rows.logits + first;
  const float weight = rows.weights[blockIdx.x];
  if (weight == 0.0F) {
    return clear_row(rows.gradient + first, rows.vocab);
  }
  RunningSum seen;
  for_columns(rows.vocab, [&](int column) {
    const Eight x = load_eight(logits + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (column + i < rows.vocab) {
        seen.add(x.values[i], 0.0F);
      }
    }
  });
  const float normalizer = join_block(seen, memory).normalizer();
  const int target = targets[blockIdx.x];
  for_columns(rows.vocab, [&](int column) {
    Eight x = load_eight(logits + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float p = __expf(x.values[i] - normalizer);
      x.values[i] = weight * (p - (column + i == target ? 1.0F : 0.0F));
    }
    store_eight(rows.gradient + first + column, x);
  });
  if (threadIdx.x == 0) {
    atomicAdd(rows.loss, double{weight} * (double{normalizer} - double{logits[target]}));
  }
}

// KL(q || p) of teacher q and student p has d/dz_v = p_v - q_v; KL(p || q) has
// p_v (log p_v - log q_v - KL). Sums of differences of the logits stay exact where both agree.
template <Divergence Kind>
__global__ void __launch_bounds__(kThreads)
    distillation_kernel(const __grid_constant__ LossRows rows, const float* teacher) {
  __shared__ RunningSum student_memory[kWarps];
  __shared__ RunningSum teacher_memory[kWarps];
  const std::size_t first = std::size_t{blockIdx.x} * rows.stride;
  const float* logits = rows.logits + first;
  const float* expected = teacher + first;
  const float weight = rows.weights[blockIdx.x];
  if (weight == 0.0F) {
    return clear_row(rows.gradient + first, rows.vocab);
  }
  RunningSum student;
  RunningSum taught;
  for_columns(rows.vocab, [&](int column) {
    const Eight x = load_eight(logits + column);
    const Eight y = load_eight(expected + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (column + i < rows.vocab) {
        student.add(x.values[i], x.values[i] - y.values[i]);
        taught.add(y.values[i], y.values[i] - x.values[i]);
      }
    }
  });
  student = join_block(student, student_memory);
  taught = join_block(taught, teacher_memory);
  const float p_normalizer = student.normalizer();
  const float q_normalizer = taught.normalizer();
  const bool forward = Kind == Divergence::forward;
  const float difference =
      forward ? taught.difference / taught.sum : student.difference / student.sum;
  for_columns(rows.vocab, [&](int column) {
    Eight x = load_eight(logits + column);
    const Eight y = load_eight(expected + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float p = __expf(x.values[i] - p_normalizer);
      if (forward) {
        x.values[i] = weight * (p - __expf(y.values[i] - q_normalizer));
      } else {
        x.values[i] = weight * p * (x.values[i] - y.values[i] - difference);
      }
    }
    store_eight(rows.gradient + first + column, x);
  });
  if (threadIdx.x == 0) {
    const double normalizers = double{p_normalizer} - double{q_normalizer};
    atomicAdd(rows.loss,
              double{weight} * (double{difference} + (forward ? normalizers : -normalizers)));
  }
}

}  // namespace

void cross_entropy(const LossRows& rows, const std::int32_t* targets, cudaStream_t stream) {
  cross_entropy_kernel<<<rows.rows, kThreads, 0, stream>>>(rows, targets);
  winnow::cuda::check_launch("cross entropy");
}

void distillation(Divergence divergence, const LossRows& rows, const float* teacher,
                  cudaStream_t stream) {
  if (divergence == Divergence::forward) {
    distillation_kernel<Divergence::forward><<<rows.rows, kThreads, 0, stream>>>(rows, teacher);
  } else {
    distillation_kernel<Divergence::reverse><<<rows.rows, kThreads, 0, stream>>>(rows, teacher);
  }
  winnow::cuda::check_launch("distillation");
}

}  // namespace winnow::ops::cuda
