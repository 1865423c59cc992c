// From the last layer's rows to logits and tokens on a device.
#pragma once

#include <cstdint>
#include <span>

#include "model/cuda/device_model.h"
#include "model/cuda/row_choice.h"
#include "ops/cuda/linear/skinny_gemm.h"
#include "ops/matrix.h"

namespace winnow::model::cuda {

class OutputHead {
 public:
  /// With room for so many rows of a step.
  OutputHead(const DeviceModel& model, int rows);

  /// The layer that makes the most likely tokens of up to most_skinny_rows() normed rows; they
  /// go to tokens(), and their logits, which go to own_logits() if asked for.
  [[nodiscard]] ops::cuda::SkinnyGemm layer(const ops::cuda::SkinnyInput& input,
                                            bool with_logits) const;
  [[nodiscard]] const std::int32_t* tokens() const { return tokens_.data(); }
  /// Null on ranks but the first.
  [[nodiscard]] float* logits() const { return logits_.data(); }
  /// Where products leave logits, of the tokens that this rank has: [rows, own_vocab()].
  [[nodiscard]] float* own_logits() const {
    return ranks_ != nullptr ? own_logits_.data() : logits_.data();
  }
  /// Whether this is the rank that has logits() of all tokens behind complete_logits().
  [[nodiscard]] bool is_first() const { return ranks_ == nullptr || ranks_->rank() == 0; }

  /// From own_logits() to logits(): what the description does to them behind the product (a bias, a
  /// multiplier, a soft cap), and where ranks have parts of them, rank 0 gathers these.
  void complete_logits(int rows, cudaStream_t stream) const;

  /// How the next launch of sample() chooses `count` rows: those behind `rows` become the most
  /// likely tokens.
  void choose_by(std::span<const RowChoice> rows, int count);
  /// Asks which tokens the same rows may choose, while `stream` goes on with what is in it. Before
  /// sample(), where any_restricted().
  void send_masks(std::span<const RowChoice> rows, const winnow::cuda::Stream& stream) {
    masks_.send(rows, stream);
  }
  /// tokens() of the first `rows` of logits(), as choose_by() says when this runs.
  void sample(int rows, cudaStream_t stream);

  /// Any number of rows (up to most_skinny_rows() if their norms are still to be taken): their
  /// tokens, which `rows` [count] choose, and logits to the host. Each may be empty; without `rows`
  /// tokens are the most likely ones. Waits for the stream.
  void read(ops::cuda::SkinnyInput input, std::size_t count, std::span<const RowChoice> rows,
            ops::Matrix<float> logits, std::span<std::int32_t> tokens,
            const winnow::cuda::Stream& stream);

 private:
  ops::cuda::GemmWeight linear_;
  const ModelSpec& spec_;
  const parallel::cuda::DeviceRanks* ranks_;
  Range own_tokens_;
  const float* bias_;  // of logits, or null
  std::size_t vocab_;
  std::size_t hidden_;
  winnow::cuda::DeviceBuffer<std::int32_t> tokens_;
  winnow::cuda::DeviceBuffer<float> logits_;      // [rows, vocab], of rank 0
  winnow::cuda::DeviceBuffer<float> own_logits_;  // [rows, own tokens] where ranks have parts
  float* first_logits_ = nullptr;                 // rank 0's logits_
  winnow::cuda::PinnedBuffer<ops::cuda::SampledRow> rows_;
  TokenMasks masks_;
  ops::cuda::SkinnyScratch scratch_;
};

}  // namespace winnow::model::cuda
