#include "ops/cuda/decode_attention.h"

#include <numbers>
#include <type_traits>

#include "base/error.h"
#include "ops/cuda/decode_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

// The kernels are built for some groups only.
int checked_group(int group) {
  require(group >= 1 && group <= kMostGroup,
          "{} query heads per KV head are not supported on the device, expected 1 to {}", group,
          kMostGroup);
  return group;
}

}  // namespace

DecodePlan::DecodePlan(const DevicePageLayout& layout, int group, int kv_heads, int most_batch,
                       int layers)
    : DecodePlan(layout, group, kv_heads, most_batch, layers,
                 resident_workers(layout.format(), layout.head_dim(), checked_group(group)),
                 /*takes_tokens=*/false) {}

DecodePlan::DecodePlan(const DevicePageLayout& layout, int group, int kv_heads, int most_batch,
                       int layers, int resident)
    : DecodePlan(layout, checked_group(group), kv_heads, most_batch, layers, resident,
                 /*takes_tokens=*/true) {}

DecodePlan::DecodePlan(const DevicePageLayout& layout, int group, int kv_heads, int most_batch,
                       int layers, int resident, bool takes_tokens)
    : layout_(layout),
      group_(group),
      kv_heads_(kv_heads),
      most_batch_(most_batch),
      layers_(layers),
      resident_(resident),
      takes_tokens_(takes_tokens),
      rows_(size(layers) * most_rows()),
      runs_(size(layers * resident)),
      first_pages_(takes_tokens ? runs_.size() * size(kFirstPages) : 0),
      partial_out_((size(resident) + 2 * most_rows()) * size(group * layout.head_dim())),
      partial_sums_((size(resident) + 2 * most_rows()) * size(group)) {}

std::size_t DecodePlan::most_rows() const {
  return size(most_batch_ * kv_heads_);
}

// Few rows' blocks that take tokens have places of their own beside the runs, so that all begin at
// once; many come first, as soon over as they are short.
int DecodePlan::workers() const {
  const int taken = takes_tokens_ ? batch_ * kv_heads_ * kDecodeWarps : 0;
  return 4 * taken <= resident_ ? resident_ - taken : resident_;
}

DecodePlan::View DecodePlan::view(int layer) const {
  return {.batch_rows = batch_ * kv_heads_,
          .workers = workers(),
          .takes_tokens = takes_tokens_,
          .rows = rows_.data() + size(layer) * most_rows(),
          .runs = runs_.data() + size(layer * workers()),
          .first_pages = takes_tokens_
                             ? first_pages_.data() + size(layer * workers()) * size(kFirstPages)
                             : nullptr,
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
    launch_plan(
        {first_layer, layer_counts, view(0), most_rows(), layers_, tile_pages(layout_.head_dim())},
        stream);
  }
}

template <class Out>
DecodeArguments DecodePlan::arguments_of(int layer, const DecodeEntries& entries, float scale,
                                         const float* query, Out* out) const {
  require(layer >= 0 && layer < layers_, "decode attention: layer {} of {}", layer, layers_);
  return {entries,
          view(layer),
          query,
          out,
          std::is_same_v<Out, bf16>,
          scale * std::numbers::log2e_v<float>,
          group_,
          part_bits(layout_.format())};
}

template <class Out>
void DecodePlan::attend_to(int layer, const DecodeEntries& entries, float scale, const float* query,
                           Out* out, cudaStream_t stream) const {
  if (batch_ == 0) {
    return;
  }
  const DecodeArguments arguments = arguments_of(layer, entries, scale, query, out);
  launch_attention(layout_.format(), layout_.head_dim(), arguments, stream);
  merge(arguments, stream);
}

void DecodePlan::attend(int layer, const DecodeEntries& entries, float scale, const float* query,
                        bf16* out, cudaStream_t stream) const {
  attend_to(layer, entries, scale, query, out, stream);
}

void DecodePlan::attend(int layer, const DecodeEntries& entries, float scale, const float* query,
                        float* out, cudaStream_t stream) const {
  attend_to(layer, entries, scale, query, out, stream);
}

DecodeArguments DecodePlan::arguments(int layer, const DecodeEntries& entries, float scale,
                                      bf16* out) const {
  return arguments_of(layer, entries, scale, nullptr, out);
}

void DecodePlan::merge(const DecodeArguments& arguments, cudaStream_t stream) const {
  launch_merge(layout_.format(), layout_.head_dim(), arguments, stream);
}

}  // namespace winnow::ops::cuda
