#include "train/cuda/muon.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "train/cuda/copies.h"

namespace winnow::train::cuda {
namespace {

// Maximum number of elements of a batch, unless one matrix alone has more.
constexpr std::size_t kMostElements = std::size_t{1} << 26;

struct Plan {
  std::vector<MuonMatrix> matrices;
  std::vector<MuonBatch> batches;  // their matrices are null: they are stored one after another
  // Maximum elements:
  std::size_t x = 0;
  std::size_t gram = 0;
  std::size_t count = 0;
};

Plan plan_of(const ParameterList& list, const Partition& partition) {
  std::map<std::pair<int, int>, std::vector<MuonMatrix>> by_shape;
  for (const Parameter& parameter : list.list()) {
    const bool own = parameter.offset >= partition.begin() && parameter.offset < partition.end();
    if (parameter.role == Role::matrix && own) {
      const MuonMatrix matrix{
          parameter.offset - partition.begin(), static_cast<int>(parameter.shape[0]),
          static_cast<int>(parameter.shape[1]), static_cast<float>(muon_scale(parameter.shape))};
      by_shape[std::minmax(matrix.rows, matrix.cols)].push_back(matrix);
    }
  }
  Plan plan;
  for (const auto& [shape, matrices] : by_shape) {
    const auto [small, large] = shape;
    const std::size_t size = static_cast<std::size_t>(small) * static_cast<std::size_t>(large);
    const std::size_t most = std::max<std::size_t>(1, kMostElements / size);
    for (std::size_t begin = 0; begin < matrices.size(); begin += most) {
      const std::size_t count = std::min(most, matrices.size() - begin);
      plan.batches.push_back({nullptr, static_cast<int>(count), small, large});
      plan.x = std::max(plan.x, count * size);
      plan.gram = std::max(
          plan.gram, count * static_cast<std::size_t>(small) * static_cast<std::size_t>(small));
      plan.count = std::max(plan.count, count);
    }
    plan.matrices.insert(plan.matrices.end(), matrices.begin(), matrices.end());
  }
  return plan;
}

}  // namespace

Muon::Muon(const MuonOptions& options, const ParameterList& list, const Partition& partition)
    : options_(options) {
  Plan plan = plan_of(list, partition);
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

std::size_t Muon::bytes(const ParameterList& list, const Partition& partition) {
  const Plan plan = plan_of(list, partition);
  return 2 * (plan.x + plan.gram) * sizeof(bf16);
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
