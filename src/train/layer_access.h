// Where passes say which layer they are at.
#pragma once

namespace winnow::train {

/// Brings a layer's tensors before a pass works on it: nothing to do where they all stay.
class LayerAccess {
 public:
  virtual ~LayerAccess() = default;
  /// The layer's weights are about to be read, and its gradients to be added to.
  virtual void open(int /*layer*/) {}
  /// Its gradients of this backward pass are complete.
  virtual void close(int /*layer*/) {}
};

}  // namespace winnow::train
