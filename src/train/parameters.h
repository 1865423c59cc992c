// The tensors that training changes, in fp32, and their gradients.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "model/checkpoint.h"
#include "train/tensors.h"

namespace winnow::train {

/// The kind of a tensor: it determines learning rate, weight decay and clipping.
enum class Role : std::uint8_t {
  embedding,  // the embedding and the head
  matrix,     // of the layers
  vector,     // norms and biases
  decision,   // all tensors that compute decisions
};

struct Parameter {
  std::string name;
  Shape shape;
  Role role = Role::matrix;
  std::size_t offset = 0;  // in the flat arrays
  std::size_t count = 0;
};

/// Which tensors are trained.
enum class Trained : std::uint8_t {
  everything,
  decisions,  // the rest of the model is frozen
};

/// The layout of the trained tensors: one after another, grouped by role, so that code that treats
/// a role's tensors alike sees one array.
class ParameterList {
 public:
  ParameterList(const model::ModelSpec& spec, Trained trained);

  [[nodiscard]] std::span<const Parameter> list() const { return list_; }
  [[nodiscard]] bool contains(std::string_view name) const { return by_name_.contains(name); }
  [[nodiscard]] const Parameter& find(std::string_view name) const;
  /// The part of the flat arrays that holds a role's tensors: [first, second).
  [[nodiscard]] std::pair<std::size_t, std::size_t> range(Role role) const;
  /// Elements of a flat array; tensors begin at multiples of 8.
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Elements of all tensors.
  [[nodiscard]] std::int64_t count() const;

 private:
  std::vector<Parameter> list_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::size_t size_ = 0;
};

class Sharding;

/// The trained tensors themselves, in host memory: all of them, or what one rank holds.
class Parameters : public ParameterList {
 public:
  /// All values are 0. `sharding`, which must outlive this, says what the rank holds; null:
  /// everything.
  Parameters(const model::ModelSpec& spec, Trained trained, const Sharding* sharding = nullptr);

  [[nodiscard]] bool is_whole() const { return sharding_ == nullptr; }
  /// Copies the values that this rank holds, of the flat arrays' elements from `offset` on.
  void set(std::size_t offset, std::span<const float> values);

  /// The flat array, or the rank's parts of it, one after another. Access by name needs whole
  /// parameters.
  [[nodiscard]] std::span<float> values() { return values_.span(); }
  [[nodiscard]] std::span<const float> values() const { return values_.span(); }
  [[nodiscard]] std::span<float> values(std::string_view name);
  [[nodiscard]] TensorView view(std::string_view name) const;

  /// Allocated and zeroed on first use: a device has its own gradients.
  [[nodiscard]] std::span<float> gradients();
  [[nodiscard]] std::span<float> gradients(std::string_view name);
  /// Where the gradients of the trained tensors go.
  [[nodiscard]] Gradients gradient_views(const model::ModelSpec& spec);

 private:
  const Sharding* sharding_;
  Buffer<float> values_;
  Buffer<float> gradients_;
};

/// The role of a tensor with this name and shape.
Role role_of(std::string_view name, const Shape& shape);

/// A checkpoint's weights that training reads but does not change: matrices as they are mapped,
/// vectors widened to fp32.
class FrozenTensors {
 public:
  explicit FrozenTensors(const model::Checkpoint& checkpoint);
  [[nodiscard]] std::optional<TensorView> find(const std::string& name) const;

 private:
  model::Checkpoint checkpoint_;
  std::map<std::string, std::vector<float>> vectors_;
};

/// Copies a floating-point tensor to fp32.
void widen(const TensorView& tensor, std::span<float> out);

}  // namespace winnow::train
