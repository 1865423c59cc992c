// Passes say here which of a model's matrices they are about to use.
#pragma once

namespace winnow::train::cuda {

/// A pass goes through places: the embedding, the layers from 0 on, and the head, whose number is
/// that of the layers.
inline constexpr int kEmbeddingPlace = -1;

/// Makes the matrices of a place whole on this device when ranks hold them in parts (ZeRO stage 3).
/// All ranks open places, and open and close gradients, in the same order.
class PlaceAccess {
 public:
  virtual ~PlaceAccess() = default;
  /// The pass's stream is about to read the matrices of `place`, and then those of the layer
  /// `next`, if it is one.
  virtual void open(int /*place*/, int /*next*/) {}
  /// It is about to add to their gradients, which are zero.
  virtual void open_gradients(int /*place*/) {}
  /// It has added all of one part of a batch.
  virtual void close_gradients(int /*place*/) {}
};

/// For models that are whole on this device.
inline PlaceAccess& whole_model() {
  static PlaceAccess access;
  return access;
}

}  // namespace winnow::train::cuda
