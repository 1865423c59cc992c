// Entries that several layers of a model attend to.
#pragma once

#include <cstddef>
#include <map>

#include "base/tensor.h"
#include "train/layer.h"

namespace winnow::train {

/// The entries that attention reads from layers whose entries others share, and their gradients.
/// Present for those layers and for the ones that share; null for all others.
class SharedEntries {
 public:
  SharedEntries(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients);
  static std::size_t bytes(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients);

  [[nodiscard]] const Entries* entries_of(int layer) const { return find(entries_, layer); }
  [[nodiscard]] const Entries* gradients_of(int layer) const { return find(gradients_, layer); }
  void clear_gradients();

 private:
  using ByLayer = std::map<int, Entries>;  // by the layer that stores them

  [[nodiscard]] const Entries* find(const ByLayer& entries, int layer) const;

  model::ModelSpec spec_;
  Buffer<float> memory_;
  ByLayer entries_;
  ByLayer gradients_;
};

}  // namespace winnow::train
