#include "model/cuda/device_lora.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

namespace winnow::model::cuda {
namespace {

using ops::cuda::LowRankProduct;

// Kernels read eight values at a time, so the rank is padded with rows and columns of zeros.
constexpr std::int64_t padded(std::int64_t rank) {
  return (rank + 7) / 8 * 8;
}

// Indexed by LoraPlace.
constexpr std::array<std::optional<LoraProduct> LoraLayer::*, kLoraPlaces> kMembers{
    &LoraLayer::query, &LoraLayer::key, &LoraLayer::value, &LoraLayer::output,
    &LoraLayer::gate,  &LoraLayer::up,  &LoraLayer::down};

// Appends the weight's values [rows, cols]; returns the index of the first one.
std::size_t append(std::vector<bf16>& values, const ops::Weight& weight, std::int64_t rows,
                   std::int64_t cols) {
  const std::size_t begin = values.size();
  values.resize(begin + static_cast<std::size_t>(rows * cols));
  std::vector<float> row(static_cast<std::size_t>(weight.cols));
  for (std::int64_t i = 0; i < weight.rows; ++i) {
    ops::dequantize_row(weight, i, row.data());
    std::ranges::transform(row, values.begin() + static_cast<std::ptrdiff_t>(begin) + i * cols,
                           [](float x) { return to_bf16(x); });
  }
  return begin;
}

struct Placed {
  std::size_t down;
  std::size_t up;
};

}  // namespace

DeviceLora::DeviceLora(const Lora& lora, int layers) {
  std::vector<bf16> values;
  std::vector<LowRankProduct> products(static_cast<std::size_t>(layers * kLoraPlaces));
  std::vector<Placed> places(products.size());
  for (std::size_t i = 0; i < products.size(); ++i) {
    const auto& product = lora.layer(static_cast<int>(i) / kLoraPlaces).*kMembers[i % kLoraPlaces];
    if (!product) {
      continue;
    }
    const std::int64_t rank = padded(product->down.rows);
    require(rank <= ops::cuda::kMostLowRank,
            "--device cuda: an adapter of rank {}; at most {} is supported", product->down.rows,
            ops::cuda::kMostLowRank);
    places[i] = {append(values, product->down, rank, product->down.cols),
                 append(values, product->up, product->up.rows, rank)};
    products[i].rank = static_cast<int>(rank);
    products[i].scale = product->scale;
    rank_ = std::max(rank_, products[i].rank);
  }
  weights_ = winnow::cuda::DeviceBuffer<bf16>(std::span<const bf16>(values));
  for (std::size_t i = 0; i < products.size(); ++i) {
    if (products[i].rank > 0) {
      products[i].down = weights_.data() + places[i].down;
      products[i].up = weights_.data() + places[i].up;
    }
  }
  products_ = winnow::cuda::DeviceBuffer<LowRankProduct>(std::span<const LowRankProduct>(products));
}

const DeviceLora& DeviceLoras::of(const Lora& lora) {
  const auto key = lora.weak_from_this();
  if (const auto found = loras_.find(key); found != loras_.end()) {
    return found->second;
  }
  std::erase_if(loras_, [](const auto& entry) { return entry.first.expired(); });
  return loras_.try_emplace(key, lora, layers_).first->second;
}

void AdaptedRows::reserve(std::size_t rows, int rank) {
  if (host_.size() < rows) {
    host_ = winnow::cuda::PinnedBuffer<Products>(rows);
  }
  device_.ensure(rows);
  rank_ = rank;
  inner_.ensure(ops::cuda::kMostLowRankParts * rows * static_cast<std::size_t>(rank));
}

void AdaptedRows::put(std::span<const DeviceLora* const> rows, cudaStream_t stream) {
  std::ranges::transform(rows, host_.data(), [](const DeviceLora* adapter) {
    return adapter != nullptr ? adapter->products() : nullptr;
  });
  winnow::cuda::check(cudaMemcpyAsync(device_.data(), host_.data(), rows.size() * sizeof(Products),
                                      cudaMemcpyHostToDevice, stream),
                      "copy a step's adapters to the device");
}

}  // namespace winnow::model::cuda
