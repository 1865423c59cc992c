// From the last layer's rows to logits and tokens on a device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/cuda/device_model.h"
#include "model/cuda/row_choice.h"
#include "ops/cuda/linear/skinny_gemm.h"
#include "ops/matrix.h"

namespace winnow::model::cuda {

class OutputHead {
 public:
  /// Makes room for `rows` rows of a step.
  OutputHead(const DeviceModel& model, int rows);

  /// The GEMM for up to most_skinny_rows() normed rows. It writes the most likely tokens to
  /// tokens() and, if asked to, the logits to own_logits().
  [[nodiscard]] ops::cuda::SkinnyGemm layer(const ops::cuda::SkinnyInput& input,
                                            bool with_logits) const;
  [[nodiscard]] const std::int32_t* tokens() const { return tokens_.data(); }
  /// Only on the first rank.
  [[nodiscard]] float* logits() const {
    return ranks_ != nullptr ? ranks_->gathered() : logits_.data();
  }
  /// The product's output [rows, own_width_]: logits of this rank's tokens, or of those that a head
  /// drafts.
  [[nodiscard]] float* own_logits() const {
    return own_logits_.size() > 0 ? own_logits_.data() : logits_.data();
  }
  /// Whether this rank has the logits() of all tokens after complete_logits().
  [[nodiscard]] bool is_first() const { return ranks_ == nullptr || ranks_->rank() == 0; }

  /// From own_logits() to logits(): applies the model's bias, multiplier and soft cap; with ranks,
  /// rank 0 gathers the parts. Tokens that a head cannot draft get no probability.
  void complete_logits(int rows, cudaStream_t stream) const;

  /// Sets how the next launch of sample() chooses `count` rows; rows after `rows` get the most
  /// likely token.
  void choose_by(std::span<const RowChoice> rows, int count);
  /// Computes the allowed tokens of these rows while `stream` runs its work. To be called before
  /// sample() if any_restricted().
  void send_masks(std::span<const RowChoice> rows, const winnow::cuda::Stream& stream) {
    masks_.send(rows, stream);
  }
  /// Chooses tokens() for the first `rows` rows of logits(), by the last choose_by().
  void sample(int rows, cudaStream_t stream);

  /// Computes the head for any number of rows (up to most_skinny_rows() if their norms are still to
  /// be applied). Copies tokens, chosen by `rows` [count], and logits to the host; each may be
  /// empty. Without `rows`, the tokens are the most likely ones. Waits for the stream.
  void read(ops::cuda::SkinnyInput input, std::size_t count, std::span<const RowChoice> rows,
            ops::Matrix<float> logits, std::span<std::int32_t> tokens,
            const winnow::cuda::Stream& stream);

 private:
  ops::cuda::GemmWeight linear_;
  const ModelSpec& spec_;
  const parallel::cuda::DeviceRanks* ranks_;
  int own_width_;
  std::vector<int> token_cuts_;  // with ranks: rank r has the logits of tokens [r, r + 1) of these
  const float* bias_;            // of the logits, or null
  const std::int32_t* drafted_;  // [own_width_] the tokens that a head drafts, or null
  std::size_t vocab_;
  std::size_t hidden_;
  winnow::cuda::DeviceBuffer<std::int32_t> tokens_;
  winnow::cuda::DeviceBuffer<float> logits_;      // [rows, vocab], without ranks
  winnow::cuda::DeviceBuffer<float> own_logits_;  // [rows, own_width_], with ranks or a head
  winnow::cuda::PinnedBuffer<ops::cuda::SampledRow> rows_;
  TokenMasks masks_;
  ops::cuda::SkinnyScratch scratch_;
};

}  // namespace winnow::model::cuda
