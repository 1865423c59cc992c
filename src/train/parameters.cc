#include "train/parameters.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "base/threads.h"
#include "ops/weight.h"
#include "train/sharding.h"

namespace winnow::train {
namespace {

constexpr std::array kRoles{Role::embedding, Role::matrix, Role::vector, Role::decision};

// Pads so that every tensor begins at a multiple of 16 bytes in bf16.
std::size_t padded_size(std::size_t floats) {
  return (floats + 7) / 8 * 8;
}

Buffer<float> zeros(std::size_t count) {
  Buffer<float> buffer(count);
  std::ranges::fill(buffer, 0.0F);
  return buffer;
}

/// Norms of heads may have one row per head, and still count as vectors.
bool is_vector(std::string_view name, const Shape& shape) {
  return shape.size() != 2 || name.ends_with("norm.weight") || name.ends_with("bias");
}

}  // namespace

Role role_of(std::string_view name, const Shape& shape) {
  if (name.find(".dms_") != std::string_view::npos ||
      name.find(".dmc_") != std::string_view::npos) {
    return Role::decision;
  }
  if (is_vector(name, shape)) {
    return Role::vector;
  }
  return name.starts_with("model.layers.") ? Role::matrix : Role::embedding;
}

ParameterList::ParameterList(const model::ModelSpec& spec, Trained trained) {
  for (const Role role : kRoles) {
    for (const auto& [name, shape] : tensor_shapes(spec)) {
      const bool wanted = trained == Trained::everything || role == Role::decision;
      if (role_of(name, shape) == role && wanted) {
        const auto count = static_cast<std::size_t>(element_count(shape));
        by_name_.emplace(name, list_.size());
        list_.push_back({name, shape, role, size_, count});
        size_ += padded_size(count);
      }
    }
  }
}

const Parameter& ParameterList::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  assert(found != by_name_.end());
  return list_[found->second];
}

std::pair<std::size_t, std::size_t> ParameterList::range(Role role) const {
  std::size_t begin = size_;
  std::size_t end = 0;
  for (const Parameter& parameter : list_) {
    if (parameter.role == role) {
      begin = std::min(begin, parameter.offset);
      end = std::max(end, parameter.offset + padded_size(parameter.count));
    }
  }
  return {std::min(begin, end), end};
}

std::int64_t ParameterList::count() const {
  std::int64_t total = 0;
  for (const Parameter& parameter : list_) {
    total += static_cast<std::int64_t>(parameter.count);
  }
  return total;
}

Parameters::Parameters(const model::ModelSpec& spec, Trained trained, const Sharding* sharding)
    : ParameterList(spec, trained),
      sharding_(sharding),
      values_(zeros(sharding == nullptr ? size() : sharding->held())) {}

void Parameters::set(std::size_t offset, std::span<const float> values) {
  if (sharding_ == nullptr) {
    std::ranges::copy(values, values_.data() + offset);
  } else {
    sharding_->copy_held(offset, values, values_.span());
  }
}

std::span<float> Parameters::values(std::string_view name) {
  assert(is_whole());
  const Parameter& parameter = find(name);
  return values_.span().subspan(parameter.offset, parameter.count);
}

TensorView Parameters::view(std::string_view name) const {
  assert(is_whole());
  const Parameter& parameter = find(name);
  return {DType::f32, parameter.shape,
          reinterpret_cast<const std::byte*>(values_.data() + parameter.offset)};
}

std::span<float> Parameters::gradients() {
  if (gradients_.empty()) {
    gradients_ = zeros(values_.size());
  }
  return gradients_.span();
}

std::span<float> Parameters::gradients(std::string_view name) {
  assert(is_whole());
  const Parameter& parameter = find(name);
  return gradients().subspan(parameter.offset, parameter.count);
}

Gradients Parameters::gradient_views(const model::ModelSpec& spec) {
  return bind_gradients(spec, [this](const std::string& name) {
    return contains(name) ? gradients(name) : std::span<float>();
  });
}

void widen(const TensorView& tensor, std::span<float> out) {
  assert(static_cast<std::size_t>(tensor.count()) == out.size());
  TensorView flat = tensor;
  const std::int64_t rows = tensor.shape.size() != 2 ? 1 : tensor.shape[0];
  flat.shape = {rows, tensor.count() / rows};
  const ops::Weight weight = ops::weight_view(flat);
  const auto width = static_cast<std::size_t>(weight.cols);
  parallel_ranges(
      static_cast<std::size_t>(weight.rows), [&](std::size_t begin, std::size_t end, int) {
        for (std::size_t row = begin; row < end; ++row) {
          ops::dequantize_row(weight, static_cast<std::int64_t>(row), out.data() + row * width);
        }
      });
}

FrozenTensors::FrozenTensors(const model::Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    const bool floating =
        tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
    if (floating && is_vector(name, tensor.shape)) {
      auto& vector = vectors_[name];
      vector.resize(static_cast<std::size_t>(tensor.count()));
      widen(tensor, vector);
    }
  }
}

std::optional<TensorView> FrozenTensors::find(const std::string& name) const {
  if (const auto found = vectors_.find(name); found != vectors_.end()) {
    return TensorView{DType::f32, checkpoint_.tensor(name).shape,
                      reinterpret_cast<const std::byte*>(found->second.data())};
  }
  const auto found = checkpoint_.tensors().find(name);
  return found == checkpoint_.tensors().end() ? std::nullopt : std::optional(found->second);
}

}  // namespace winnow::train
