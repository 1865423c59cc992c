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

/// What kind of tensor it is: learning rates, weight decay and clipping go by it.
enum class Role : std::uint8_t {
  embedding,  // the embedding and the head
  matrix,     // of the layers
  vector,     // norms and biases
  decision,   // all that decisions are computed with
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

/// Where the trained tensors lie: one after another, role after role, so that code that treats them
/// alike sees one array.
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
  /// Zero everywhere. `sharding`, which must outlive this, says what the rank holds; null:
  /// everything.
  Parameters(const model::ModelSpec& spec, Trained trained, const Sharding* sharding = nullptr);

  [[nodiscard]] bool is_whole() const { return sharding_ == nullptr; }
  /// Takes over what it holds of the elements from `offset` on of the flat arrays.
  void set(std::size_t offset, std::span<const float> values);

  /// The flat array, or the parts of it that the rank holds, one after another. By name: of whole
  /// parameters.
  [[nodiscard]] std::span<float> values() { return values_.span(); }
  [[nodiscard]] std::span<const float> values() const { return values_.span(); }
  [[nodiscard]] std::span<float> values(std::string_view name);
  [[nodiscard]] TensorView view(std::string_view name) const;

  /// Allocated, as 0, when they are first asked for: a device has its own.
  [[nodiscard]] std::span<float> gradients();
  [[nodiscard]] std::span<float> gradients(std::string_view name);
  /// Where the gradients of the trained tensors go.
  [[nodiscard]] Gradients gradient_views(const model::ModelSpec& spec);

 private:
  const Sharding* sharding_;
  Buffer<float> values_;
  Buffer<float> gradients_;
};

/// By a tensor's name and shape.
Role role_of(std::string_view name, const Shape& shape);

/// A checkpoint's weights as training reads them without changing them: matrices where they are
/// mapped, vectors widened to fp32.
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
