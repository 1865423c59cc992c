// Weights and gradients that are divided among ranks (ZeRO, stage 3).
#pragma once

#include <vector>

#include "train/student_tensors.h"

namespace winnow::train {

/// A layer's weights are gathered when a pass opens it, and its gradients are summed over ranks
/// when a backward pass closes it. Tensors outside layers (embedding, head, final norm) are whole
/// from begin_update() to add_up().
class ShardedTensors : public StudentTensors {
 public:
  ShardedTensors(const model::ModelSpec& spec, const FindTensor& base, Parameters& parameters,
                 const Sharding& sharding, parallel::Communicator& ranks);
  /// Weights that are whole at the same time; as many gradients are.
  static std::size_t whole_at_once(const Sharding& sharding);

  void open(int layer) override;
  void close(int layer) override;
  void begin_update() override;
  void add_up() override;
  void end_update() override {}  // others gather it when they need it
  [[nodiscard]] std::span<float> held_values() override { return parameters_.values(); }
  [[nodiscard]] std::span<float> held_gradients() override { return parameters_.gradients(); }

 private:
  // A section and its offset among whole tensors. All layers use the same place, after the rest.
  struct Place {
    const Section* section;
    std::size_t at;
    std::vector<std::size_t> cuts;  // relative to the section's beginning
  };
  static std::vector<Place> places_of(const Sharding& sharding);

  [[nodiscard]] const Place& place_of(std::size_t offset) const;
  void bind(const model::ModelSpec& spec, const FindTensor& base);
  void gather(int layer);
  void reduce(int layer);
  template <class Body>
  void for_places(int layer, const Body& body);

  Parameters& parameters_;
  parallel::Communicator& ranks_;
  std::vector<Place> places_;
  Buffer<float> values_;
  Buffer<float> whole_gradients_;
  int open_ = Section::kNoLayer;  // the layer whose weights are whole
};

}  // namespace winnow::train
