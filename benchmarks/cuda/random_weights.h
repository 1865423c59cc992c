// Weights of models' shapes with random values, for benchmarks of linear layers.
#pragma once

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "base/cuda/device.h"
#include "ops/cuda/linear/device_weight.h"

namespace winnow {

/// Random codes and scales, all of them finite numbers of moderate size.
class RandomWeights {
 public:
  explicit RandomWeights(ops::cuda::DeviceWeightFormat format) {
    // Scales are bf16 as well; the exponents are limited to those of 2^-7 and less.
    const std::uint64_t kept =
        format == ops::cuda::DeviceWeightFormat::fp8 ? 0xBFBFBFBFBFBFBFBFU : 0xBBFFBBFFBBFFBBFFU;
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> codes((std::size_t{32} << 20) / 8);
    for (std::uint64_t& x : codes) {
      x = random() & kept;
    }
    block_ = cuda::DeviceBuffer<std::uint64_t>(codes);
  }

  void fill(const ops::cuda::DeviceWeightLayout& layout, std::byte* memory) const {
    const std::size_t block = block_.size() * sizeof(std::uint64_t);
    for (std::size_t done = 0; done < layout.bytes(); done += block) {
      cuda::check(cudaMemcpy(memory + done, block_.data(), std::min(block, layout.bytes() - done),
                             cudaMemcpyDeviceToDevice),
                  "fill");
    }
  }

 private:
  cuda::DeviceBuffer<std::uint64_t> block_;
};

struct ModelShape {
  const char* name;
  int layers;
  int width;
  int qkv;
  int heads;  // width of attention's output
  int inner;
  int vocabulary;
};

inline constexpr ModelShape kModels[] = {
    {"Llama-3.2-1B", 16, 2048, 3072, 2048, 8192, 128256},
    {"Qwen3-8B", 36, 4096, 6144, 4096, 12288, 151936},
};

/// The weights of all layers.
class ModelWeights {
 public:
  ModelWeights(const ModelShape& shape, ops::cuda::DeviceWeightFormat format) {
    for (int layer = 0; layer < shape.layers; ++layer) {
      add({format, shape.qkv, shape.width});
      add({format, shape.width, shape.heads});
      add({format, 2 * shape.inner, shape.width, true});
      add({format, shape.width, shape.inner});
    }
    add({format, shape.vocabulary, shape.width});
    memory_ = cuda::DeviceBuffer<std::byte>(bytes_);
    const RandomWeights random(format);
    for (auto& [layout, at] : weights_) {
      random.fill(layout, memory_.data() + at);
    }
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const std::byte* data() const { return memory_.data(); }
  [[nodiscard]] ops::cuda::DeviceWeightView view(std::size_t i) const {
    return {weights_[i].first, memory_.data() + weights_[i].second};
  }
  [[nodiscard]] std::size_t size() const { return weights_.size(); }

 private:
  void add(const ops::cuda::DeviceWeightLayout& layout) {
    weights_.emplace_back(layout, bytes_);
    bytes_ += (layout.bytes() + 255) / 256 * 256;
  }

  std::size_t bytes_ = 0;
  std::vector<std::pair<ops::cuda::DeviceWeightLayout, std::size_t>> weights_;
  cuda::DeviceBuffer<std::byte> memory_;
};

}  // namespace winnow
