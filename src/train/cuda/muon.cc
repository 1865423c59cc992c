#include "train/cuda/muon.h"

#include <utility>

#include "base/error.h"
#include "train/cuda/copies.h"
#include "train/cuda_memory/muon_plan.h"

namespace winnow::train::cuda {

Muon::Muon(const MuonOptions& options, const ParameterList& list, const Partition& partition)
    : options_(options) {
  MuonPlan plan = muon_plan(list, partition);
  matrices_ = winnow::cuda::DeviceBuffer<MuonMatrix>(std::span<const MuonMatrix>(plan.matrices));
  const MuonMatrix* next = matrices_.data();
  for (MuonBatch& batch : plan.batches) {
    batch.matrices = next;
    next += batch.count;
  }
  batches_ = std::move(plan.batches);
  x_ = winnow::cuda::DeviceBuffer<bf16>(plan.x);
  next_ = winnow::cuda::DeviceBuffer<bf16>(plan.x);
  gram_ = winnow::cuda::DeviceBuffer<bf16>(plan.gram);
  squared_ = winnow::cuda::DeviceBuffer<bf16>(plan.gram);
  norms_ = winnow::cuda::DeviceBuffer<double>(plan.count);
}

void Muon::require_supported(const model::ModelSpec& spec) {
  for (const auto& [name, shape] : tensor_shapes(spec)) {
    require(role_of(name, shape) != Role::matrix || (shape[0] % 8 == 0 && shape[1] % 8 == 0),
            "--optimizer muon: {} is {} by {}: on a CUDA device it needs multiples of 8", name,
            shape[0], shape[1]);
  }
}

void Muon::warm_up(ops::cuda::Linear& linear, cudaStream_t stream) {
  clear_async(x_, stream);
  for (const MuonBatch& batch : batches_) {
    orthogonalize(batch, linear, stream);
  }
}

void Muon::orthogonalize(const MuonBatch& batch, ops::cuda::Linear& linear, cudaStream_t stream) {
  const auto [matrices, count, small, large] = batch;
  for (int step = 0; step < NewtonSchulz::kSteps; ++step) {
    linear.multiply(gram_.data(), x_.data(), x_.data(), small, small, large, stream, count);
    linear.multiply(squared_.data(), gram_.data(), gram_.data(), small, small, small, stream,
                    count);
    polynomial(batch, gram_.data(), squared_.data(), stream);
    linear.input_gradient(next_.data(), squared_.data(), x_.data(), small, small, large, false,
                          stream, 0, count);
    std::swap(x_, next_);
  }
}

void Muon::apply(const MuonUpdate& update, const MuonArrays& arrays, ops::cuda::Linear& linear,
                 cudaStream_t stream) {
  const MuonStep step{.momentum = static_cast<float>(options_.momentum),
                      .gradient_factor = static_cast<float>(update.gradient_factor),
                      .rate = static_cast<float>(update.rate),
                      .kept = static_cast<float>(1.0 - update.rate * update.decay)};
  for (const MuonBatch& batch : batches_) {
    clear_async(norms_, stream);
    take_momentum(batch, step, arrays.momentum, arrays.gradients, x_.data(), norms_.data(), stream);
    normalize(batch, x_.data(), norms_.data(), stream);
    orthogonalize(batch, linear, stream);
    apply_direction(batch, step, x_.data(), arrays.values, arrays.rounded, stream);
  }
}

}  // namespace winnow::train::cuda
