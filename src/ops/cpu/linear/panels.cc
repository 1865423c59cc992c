#include "ops/cpu/linear/panels.h"

#include <algorithm>
#include <functional>

#include "base/threads.h"

namespace winnow::ops::cpu {

std::vector<Panel> cut_into_panels(std::span<const LinearTarget> targets) {
  constexpr std::size_t kStep = 64;
  constexpr std::size_t kWidest = 512;
  std::size_t cols = 0;
  for (const auto& target : targets) {
    cols += target.out.cols;
  }
  const std::size_t shares = 2 * static_cast<std::size_t>(thread_count());
  const std::size_t width = std::clamp(cols / shares / kStep * kStep, kStep, kWidest);
  std::vector<Panel> panels;
  for (const auto& target : targets) {
    for (std::size_t begin = 0; begin < target.out.cols; begin += width) {
      panels.push_back({&target, begin, std::min(begin + width, target.out.cols)});
    }
  }
  return panels;
}

std::size_t widest(std::span<const Panel> panels) {
  std::size_t result = 0;
  for (const Panel& panel : panels) {
    result = std::max(result, panel.end - panel.begin);
  }
  return result;
}

Matrix<float> out_of(const Panel& panel) {
  const Matrix<float>& whole = panel.target->out;
  return {whole.data + panel.begin, whole.rows, panel.end - panel.begin, whole.stride};
}

void add_bias(const Panel& panel, Matrix<float> out) {
  if (panel.target->bias == nullptr) {
    return;
  }
  for (std::size_t m = 0; m < out.rows; ++m) {
    std::ranges::transform(out.row(m), std::span(panel.target->bias + panel.begin, out.cols),
                           out.row(m).begin(), std::plus());
  }
}

}  // namespace winnow::ops::cpu
