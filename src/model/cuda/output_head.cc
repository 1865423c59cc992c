#include "model/cuda/output_head.h"

#include <algorithm>

#include "ops/cuda/gather.h"
#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/norm.h"

namespace winnow::model::cuda {
namespace {

std::size_t rows_of(int rows) {
  return static_cast<std::size_t>(std::max(rows, ops::cuda::kMostSkinnyRows));
}

}  // namespace

OutputHead::OutputHead(const DeviceModel& model, int rows)
    : linear_{model.weights().head(), nullptr},
      spec_(model.spec()),
      ranks_(model.ranks()),
      own_width_(model.weights().head().rows),
      bias_(data_or_null(model.weights().head_bias)),
      drafted_(model.weights().draft_head.tokens.data()),
      vocab_(static_cast<std::size_t>(model.vocab())),
      hidden_(static_cast<std::size_t>(model.hidden())),
      tokens_(rows_of(rows)),
      logits_(ranks_ == nullptr ? rows_of(rows) * vocab_ : 0),
      rows_(rows_of(rows)),
      masks_(rows_of(rows), vocab_) {
  if (ranks_ != nullptr || drafted_ != nullptr) {
    own_logits_.ensure(rows_of(rows) * static_cast<std::size_t>(own_width_));
  }
  if (auto* ranks = model.ranks()) {
    token_cuts_ = model.token_cuts();
    ranks->reserve_gathered(rows_of(rows) * vocab_);
  }
}

ops::cuda::SkinnyGemm OutputHead::layer(const ops::cuda::SkinnyInput& input,
                                        bool with_logits) const {
  return ops::cuda::chosen(linear_, input, tokens_.data(), with_logits ? own_logits() : nullptr);
}

void OutputHead::choose_by(std::span<const RowChoice> rows, int count) {
  std::fill_n(rows_.data(), count, ops::cuda::SampledRow{});
  masks_.place(rows, rows_.span());
}

void OutputHead::complete_logits(int rows, cudaStream_t stream) const {
  const int cols = own_width_;
  const std::size_t count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
  if (bias_ != nullptr) {
    ops::cuda::add_bias(own_logits(), rows, cols, bias_, stream);
  }
  if (spec_.logit_multiplier != 1.0F) {
    ops::cuda::scale(own_logits(), count, spec_.logit_multiplier, stream);
  }
  if (spec_.final_soft_cap > 0.0F) {
    ops::cuda::soft_cap(own_logits(),
                        {.rows = rows, .cols = cols, .stride = static_cast<std::size_t>(cols)},
                        spec_.final_soft_cap, stream);
  }
  if (drafted_ != nullptr) {
    ops::cuda::spread_columns(logits(), static_cast<int>(vocab_), own_logits(), cols, drafted_,
                              rows, stream);
  } else if (ranks_ != nullptr) {
    ranks_->gather({.own = own_logits_.data(), .rows = rows, .cuts = token_cuts_}, stream);
  }
}

void OutputHead::sample(int rows, cudaStream_t stream) {
  ops::cuda::sample_tokens(logits(), rows, static_cast<int>(vocab_), rows_.data(), tokens_.data(),
                           stream);
}

void OutputHead::read(ops::cuda::SkinnyInput input, std::size_t count,
                      std::span<const RowChoice> rows, ops::Matrix<float> logits,
                      std::span<std::int32_t> tokens, const winnow::cuda::Stream& stream) {
  const auto read_back = [&](void* to, const void* from, std::size_t bytes) {
    winnow::cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream.get()),
                        "read a step's results");
  };
  const auto most = static_cast<std::size_t>(ops::cuda::most_skinny_rows());
  // The GEMM kernel chooses tokens by its own products, which is wrong if they change afterwards.
  const bool transforms = own_logits_.size() > 0 || bias_ != nullptr ||
                          spec_.logit_multiplier != 1.0F || spec_.final_soft_cap > 0.0F;
  for (std::size_t first = 0; first < count; first += most) {
    const std::size_t group = std::min(most, count - first);
    const ops::cuda::SkinnyGemm head = layer(input, transforms || logits.rows > 0 || !rows.empty());
    ops::cuda::skinny_gemm(std::span(&head, 1), static_cast<int>(group), scratch_,
                           {stream.get(), true});
    input.x += group * hidden_;
    if (transforms) {
      complete_logits(static_cast<int>(group), stream.get());
    }
    if (is_first() && (transforms || !rows.empty())) {
      stream.synchronize();  // the last group has read its rules
      const auto choices = rows.empty() ? rows : rows.subspan(first, group);
      choose_by(choices, static_cast<int>(group));
      send_masks(choices, stream);
      sample(static_cast<int>(group), stream.get());
    }
    if (logits.data != nullptr) {
      read_back(logits.row(first).data(), this->logits(), group * vocab_ * sizeof(float));
    }
    if (!tokens.empty()) {
      read_back(tokens.data() + first, tokens_.data(), group * sizeof(std::int32_t));
    }
  }
  stream.synchronize();
}

}  // namespace winnow::model::cuda
