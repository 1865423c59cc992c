// Passes say here which layer they are at.
#pragma once

namespace winnow::train {

/// Loads a layer's tensors before a pass uses it; does nothing if all tensors are in memory.
class LayerAccess {
 public:
  virtual ~LayerAccess() = default;
  /// The layer's weights are about to be read, and its gradients to be added to.
  virtual void open(int /*layer*/) {}
  /// Its gradients of this backward pass are complete.
  virtual void close(int /*layer*/) {}
};

}  // namespace winnow::train
