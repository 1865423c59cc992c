#include "ops/cuda/decode_attention.h"

#include <numbers>

#include "base/error.h"
#include "ops/cuda/decode_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

int workers_for(const DevicePageLayout& layout) {
  const auto element_bytes = static_cast<int>(layout.host().element_bytes());
  return winnow::cuda::multiprocessor_count() * blocks_resident(layout.head_dim(), element_bytes);
}

}  // namespace

DecodePlan::DecodePlan(const DevicePageLayout& layout, int group, int rows)
    : layout_(layout),
      group_(group),
      most_rows_(rows),
      workers_(workers_for(layout)),
      row_begin_(static_cast<std::size_t>(rows) + 1),
      pages_each_(1),
      runs_(static_cast<std::size_t>(workers_)),
      arrived_(static_cast<std::size_t>(rows)),
      partial_out_(static_cast<std::size_t>(workers_ + rows) *
                   static_cast<std::size_t>(group * layout.head_dim())),
      partial_sums_(static_cast<std::size_t>(workers_ + rows) * static_cast<std::size_t>(group)) {
  require(group >= 1 && group <= kMostGroup,
          "{} query heads per KV head are not supported on the device, expected 1 to {}", group,
          kMostGroup);
}

DecodePlan::View DecodePlan::view() const {
  return {rows_,        workers_,        row_begin_.data(),   pages_each_.data(),
          runs_.data(), arrived_.data(), partial_out_.data(), partial_sums_.data()};
}

void DecodePlan::make(const DecodeEntries& entries, int rows, cudaStream_t stream) {
  require(rows >= 0 && rows <= most_rows_, "decode plan: {} rows, room for {}", rows, most_rows_);
  rows_ = rows;
  if (rows > 0) {
    launch_plan(entries, view(), stream);
  }
}

void DecodePlan::attend(const DecodeEntries& entries, float scale, const float* query, float* out,
                        cudaStream_t stream) const {
  if (rows_ == 0) {
    return;
  }
  const auto log2_e = std::numbers::log2e_v<float>;
  launch_attention(layout_.format(), layout_.head_dim(),
                   {entries, view(), query, out, scale * log2_e, group_}, stream);
}

}  // namespace winnow::ops::cuda
