// The states of a step's tokens between and behind layers, for a head that drafts (StreamStates).
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <span>
#include <vector>

#include "model/cuda/device_model.h"
#include "model/stream_states.h"

namespace winnow::model::cuda {

class StreamRows {
 public:
  /// `model` must outlive this.
  explicit StreamRows(const DeviceModel& model) : model_(&model) {}

  /// The next steps hand out the residual stream of up to `rows` tokens after so many layers each;
  /// none: nothing.
  void want(std::span<const int> after, int rows);
  [[nodiscard]] bool wants(std::span<const int> after) const {
    return std::ranges::equal(after, after_);
  }
  /// Whether the stream behind the last layer is wanted.
  [[nodiscard]] bool wants_end() const {
    return std::ranges::any_of(after_, [this](int after) { return after >= model_->layers(); });
  }
  /// Where a kernel may write the stream after a layer itself: the first row's place, of rows that
  /// are stride() elements apart; null: it is not wanted.
  [[nodiscard]] float* place_after(int layers) const;
  [[nodiscard]] int stride() const { return static_cast<int>(after_.size()) * model_->hidden(); }
  /// Whether the stream after some layer is wanted more than once.
  [[nodiscard]] bool repeats() const { return repeats_; }
  /// Keeps the stream [rows, hidden] before a layer, if it is wanted.
  void keep(int layer, const float* stream_rows, int rows, cudaStream_t stream) const;
  /// The same behind the last layer, and behind the final norm.
  void keep_end(const float* stream_rows, int rows, cudaStream_t stream) const;
  /// Copies the kept states of `to`'s tokens, of which `first` is the first row, to the host.
  void read(int first, const StreamStates& to, cudaStream_t stream) const;

 private:
  const DeviceModel* model_;
  std::vector<int> after_;
  bool repeats_ = false;
  winnow::cuda::DeviceBuffer<float> rows_;    // [rows, after * hidden]
  winnow::cuda::DeviceBuffer<float> normed_;  // [rows, hidden], if wanted
};

}  // namespace winnow::model::cuda
