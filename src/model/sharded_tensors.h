// The tensors of one rank's part of a model, cut out of those of the whole.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/shard.h"
#include "model/tensor_source.h"

namespace winnow::model {

/// What a rank takes of a tensor: the rows or columns in `ranges`, one range behind the other.
struct TensorCut {
  enum class Axis : std::uint8_t { rows, columns };
  Axis axis = Axis::rows;
  std::vector<Range> ranges;

  bool operator==(const TensorCut&) const = default;
};

/// By name, the cuts of all tensors that a rank does not take as a whole.
std::map<std::string, TensorCut> tensor_cuts(const ModelSpec& whole, const Shard& shard);

/// Those of a rank, out of a source of the whole model's, which must outlive this. Consecutive rows
/// stay where they are; all else is copied.
class ShardedTensors : public TensorSource {
 public:
  ShardedTensors(const ModelSpec& whole, const Shard& shard, TensorSource& source);

  [[nodiscard]] bool contains(const std::string& name) const override;
  TensorView get(const std::string& name) override;
  std::optional<ops::Weight> quantized(const std::string& name) override;
  void release(const std::string& name) override;
  /// Keeps alive what was copied.
  [[nodiscard]] std::shared_ptr<const void> memory() const { return memory_; }

 private:
  using Copies = std::map<std::string, Buffer<std::byte>>;
  [[nodiscard]] const TensorCut* cut_of(const std::string& name) const;

  TensorSource& source_;
  std::map<std::string, TensorCut> cuts_;
  std::shared_ptr<Copies> memory_ = std::make_shared<Copies>();
};

/// The weights of a rank's part, or of the whole model. What projections back to the stream add
/// goes into the sum over all ranks once: their biases are zeros on all ranks but the first.
Weights bind_shard(const ModelSpec& whole, const Shard& shard, TensorSource& source,
                   std::optional<ops::WeightFormat> format, const OnLayer& on_layer = {});

}  // namespace winnow::model
