#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"
#include "model/sharded_tensors.h"
#include "model/tensor_source.h"

namespace winnow::model {
namespace {

void store(float value, DType type, std::byte* memory, std::size_t index) {
  switch (type) {
    case DType::f32:
      reinterpret_cast<float*>(memory)[index] = value;
      return;
    case DType::bf16:
      reinterpret_cast<bf16*>(memory)[index] = to_bf16(value);
      return;
    default:
      reinterpret_cast<f16*>(memory)[index] = to_f16(value);
      return;
  }
}

// Uniform numbers with the spread of a usual initialisation; norms are all ones. They do not depend
// on the number of threads. `memory` has the tensor's elements from `first` on.
void fill_random(std::span<std::byte> memory, std::size_t first, DType type, std::string_view name,
                 std::int64_t columns, std::uint64_t seed) {
  constexpr std::size_t kBlock = std::size_t{1} << 16;
  const bool norm = name.find("norm") != std::string_view::npos;
  const std::size_t end = first + memory.size() / dtype_size(type);
  const float spread = norm ? 0.0F : std::sqrt(3.0F / static_cast<float>(columns));
  const float center = norm ? 1.0F : 0.0F;
  const std::size_t first_block = first / kBlock;
  const std::size_t blocks = (end + kBlock - 1) / kBlock - first_block;
  parallel_each(blocks, [&](std::size_t index, int) {
    const std::size_t block = first_block + index;
    Random random(seed, block);
    for (std::size_t i = block * kBlock; i < std::min((block + 1) * kBlock, end); ++i) {
      const auto uniform = static_cast<float>(random.uniform()) * 2.0F - 1.0F;
      if (i >= first) {
        store(center + spread * uniform, type, memory.data(), i - first);
      }
    }
  });
}

// Draws tensors, or rows of them, when they are requested.
class RandomTensors : public TensorSource {
 public:
  RandomTensors(const ModelSpec& spec, DType type, std::uint64_t seed) : type_(type), seed_(seed) {
    for (auto& [name, shape] : expected_tensors(spec)) {
      shapes_.emplace(name, shape);
    }
  }

  [[nodiscard]] bool contains(const std::string& name) const override {
    return shapes_.contains(name);
  }

  TensorView get(const std::string& name) override {
    return rows(name, 0, static_cast<int>(shape_of(name)[0]));
  }

  TensorView rows(const std::string& name, int begin, int end) override {
    Shape shape = shape_of(name);
    const auto row = static_cast<std::size_t>(element_count(shape) / shape[0]);
    const std::int64_t columns = shape.back();
    shape[0] = end - begin;
    auto& memory = memory_[name];
    if (!memory) {
      const auto count = static_cast<std::size_t>(element_count(shape));
      memory = std::make_shared<Buffer<std::byte>>(count * dtype_size(type_));
      fill_random(memory->span(), row * static_cast<std::size_t>(begin), type_, name, columns,
                  seed_ ^ std::hash<std::string>()(name));
    }
    return {type_, shape, memory->data()};
  }

  void release(const std::string& name) override { memory_.erase(name); }

  [[nodiscard]] std::vector<std::shared_ptr<const void>> owners() const {
    std::vector<std::shared_ptr<const void>> result;
    for (const auto& [name, memory] : memory_) {
      result.push_back(memory);
    }
    return result;
  }

 private:
  [[nodiscard]] const Shape& shape_of(const std::string& name) const {
    const auto found = shapes_.find(name);
    require(found != shapes_.end(), "tensor {} is missing", name);
    return found->second;
  }

  DType type_;
  std::uint64_t seed_;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, std::shared_ptr<Buffer<std::byte>>> memory_;
};

}  // namespace

Weights random_weights(const ModelSpec& spec, DType type, std::uint64_t seed,
                       std::optional<ops::WeightFormat> format, const Shard& shard) {
  RandomTensors tensors(spec, type, seed);
  Weights weights = bind_shard(spec, shard, tensors, format);
  const auto owners = tensors.owners();
  weights.owners.insert(weights.owners.end(), owners.begin(), owners.end());
  return weights;
}

}  // namespace winnow::model
