#include "train/cuda_memory/muon_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "train/muon.h"

namespace winnow::train::cuda {
namespace {

// Maximum number of elements of a batch, unless one matrix alone has more.
constexpr std::size_t kMostElements = std::size_t{1} << 26;

}  // namespace

MuonPlan muon_plan(const ParameterList& list, const Partition& partition) {
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
  MuonPlan plan;
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

std::size_t muon_bytes(const ParameterList& list, const Partition& partition) {
  const MuonPlan plan = muon_plan(list, partition);
  return 2 * (plan.x + plan.gram) * sizeof(bf16);
}

}  // namespace winnow::train::cuda
