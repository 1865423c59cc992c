#include "ops/cuda/decode/decode_attention.h"

#include <algorithm>
#include <numbers>
#include <type_traits>

#include "base/error.h"
#include "ops/cuda/decode/decode_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

// Kernels exist only for some shapes.
int checked_group(const DevicePageLayout& layout, int group) {
  require(group >= 1 && has_own_kernels(layout.head_dim(), group),
          "decode attention: no kernel for {} query heads per KV head of head dimension {}", group,
          layout.head_dim());
  return group;
}

}  // namespace

DecodePlan::DecodePlan(const DevicePageLayout& layout, int group, int kv_heads, int most_batch,
                       int layers)
    : layout_(layout),
      group_(checked_group(layout, group)),
      kv_heads_(kv_heads),
      most_batch_(most_batch),
      layers_(layers),
      workers_(resident_workers(layout.format(), layout.head_dim(), group)),
      reports_(size(layers)),
      rows_(size(layers) * most_rows()),
      runs_(size(layers * workers_)),
      partial_out_((size(workers_) + most_rows()) * size(group * layout.head_dim())),
      partial_sums_((size(workers_) + most_rows()) * size(group)) {
  std::ranges::fill(reports_.span(), Report{});
}

std::size_t DecodePlan::most_rows() const {
  return size(most_batch_ * kv_heads_);
}

DecodePlan::RowPages DecodePlan::row_pages() const {
  const double tile = static_cast<double>(tile_pages(layout_.head_dim())) / layers_;
  RowPages pages;
  for (const Report& report : reports_.span()) {
    pages.longest += tile * report.longest;
    pages.all += tile * report.tiles;
  }
  return pages;
}

DecodePlan::View DecodePlan::view(int layer) const {
  return {.batch_rows = batch_ * kv_heads_,
          .workers = workers_,
          .rows = rows_.data() + size(layer) * most_rows(),
          .runs = runs_.data() + size(layer * workers_),
          .partial_out = partial_out_.data(),
          .partial_sums = partial_sums_.data()};
}

void DecodePlan::make(const DecodeEntries& first_layer, std::size_t layer_counts, int batch,
                      cudaStream_t stream) {
  require(batch >= 0 && batch <= most_batch_, "decode plan: {} sequences, room for {}", batch,
          most_batch_);
  require(first_layer.kv_heads == kv_heads_, "decode plan: {} KV heads, made for {}",
          first_layer.kv_heads, kv_heads_);
  batch_ = batch;
  if (batch > 0) {
    launch_plan({first_layer, layer_counts, view(0), most_rows(), layers_,
                 tile_pages(layout_.head_dim()), reports_.data()},
                stream);
  }
}

template <class Out>
void DecodePlan::attend_to(int layer, const DecodeEntries& entries, float scale, const float* query,
                           Out* out, cudaStream_t stream) const {
  require(layer >= 0 && layer < layers_, "decode attention: layer {} of {}", layer, layers_);
  if (batch_ == 0) {
    return;
  }
  const DecodeArguments arguments{entries,
                                  view(layer),
                                  query,
                                  out,
                                  std::is_same_v<Out, bf16>,
                                  scale * std::numbers::log2e_v<float>,
                                  group_,
                                  part_exponent(layout_.format())};
  launch_attention(layout_.format(), layout_.head_dim(), arguments, stream);
  launch_splitk_reduce(layout_.format(), layout_.head_dim(), arguments, stream);
}

void DecodePlan::attend(int layer, const DecodeEntries& entries, float scale, const float* query,
                        bf16* out, cudaStream_t stream) const {
  attend_to(layer, entries, scale, query, out, stream);
}

void DecodePlan::attend(int layer, const DecodeEntries& entries, float scale, const float* query,
                        float* out, cudaStream_t stream) const {
  attend_to(layer, entries, scale, query, out, stream);
}

}  // namespace winnow::ops::cuda
