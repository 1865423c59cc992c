#include "train/cuda/supported.h"

#include "base/cuda/device.h"
#include "base/error.h"
#include "model/channels.h"
#include "model/supported.h"
#include "ops/cuda/experts/experts.h"
#include "ops/cuda/general/training_attention.h"
#include "ops/cuda/linear/fp8_support.h"
#include "ops/cuda/pages/kv_page.h"
#include "ops/cuda/recurrent/recurrent_rows.h"
#include "ops/cuda/segment_average.h"
#include "ops/cuda/training/training_delta.h"
#include "parallel/launched_as.h"
#include "parallel/rank_device.h"
#include "train/fp8_matrices.h"
#include "train/parameters.h"

namespace winnow::train::cuda {
namespace {

void require_supported_feed_forwards(const model::ModelSpec& spec) {
  for (const model::LayerSpec& layer : spec.layers) {
    const model::FeedForwardSpec& what = layer.feed_forward;
    for (const int width : {what.intermediate, what.dense_width()}) {
      require(spec.hidden % 8 == 0 && width % 8 == 0,
              "the model has {} hidden and {} MLP channels: training on a CUDA device needs "
              "multiples of 8",
              spec.hidden, width);
    }
    if (what.experts) {
      require(what.experts->count <= ops::cuda::kMostExperts,
              "the model has {} experts in a layer: training on a CUDA device takes {}",
              what.experts->count, ops::cuda::kMostExperts);
      require(!what.bias || !what.experts->shared_gate,
              "the model has a gated shared expert with biases: it is trained on the CPU only");
      require(!what.experts->beside || layer.norm_after,
              "the model has experts beside without a norm behind them: it is trained on the CPU "
              "only");
    }
  }
}

void require_shared_memory(std::string_view heads, int dim, int needed) {
  const int most = winnow::cuda::most_shared_memory();
  require(
      needed <= most,
      "the model has {} of {} channels: training them needs {} bytes of shared memory, of which "
      "this CUDA device has {}",
      heads, dim, needed, most);
}

void require_supported_heads(const model::AttentionSpec& attention) {
  const int dim = attention.head_dim;
  require(dim % 8 == 0 && dim <= ops::cuda::kMostHeadDim,
          "the model has heads of {} channels: training on a CUDA device takes multiples of 8 up "
          "to {}",
          dim, ops::cuda::kMostHeadDim);
  require_shared_memory("heads", dim, ops::cuda::general_training_shared_memory(dim));
}

void require_supported_widths(const model::ModelSpec& spec) {
  for (const model::LayerSpec& layer : spec.layers) {
    if (const model::AttentionSpec* attention = layer.attention()) {
      require_supported_heads(*attention);
    }
  }
  require(!spec.layer_embeddings || spec.layer_embeddings->width % 8 == 0,
          "the model has embeddings of {} channels for each layer: training on a CUDA device needs "
          "multiples of 8",
          spec.layer_embeddings ? spec.layer_embeddings->width : 0);
}

void require_supported_heads(const model::RecurrentSpec& recurrent) {
  const ops::DeltaRuleShape& heads = recurrent.heads;
  ops::cuda::check_recurrent(heads, recurrent.taps);
  require(heads.value_width() % 8 == 0,
          "the model has recurrent layers with values of {} channels: training on a CUDA device "
          "needs a multiple of 8",
          heads.value_width());
  require_shared_memory("keys of recurrent heads", heads.key_dim,
                        static_cast<int>(ops::cuda::training_delta_shared_memory(heads.key_dim)));
}

// Rows of the matrices that Muon multiplies must begin at multiples of 16 bytes.
void require_supported_by_muon(const model::ModelSpec& spec) {
  for (const auto& [name, shape] : tensor_shapes(spec)) {
    require(role_of(name, shape) != Role::matrix || (shape[0] % 8 == 0 && shape[1] % 8 == 0),
            "--optimizer muon: {} is {} by {}: on a CUDA device it needs multiples of 8", name,
            shape[0], shape[1]);
  }
}

}  // namespace

void require_supported(const TrainingOptions& options, const model::ModelSpec& spec) {
  if (const char* what = model::beyond_device_training(spec)) {
    fail("the model has {}: it is trained on the CPU only", what);
  }
  if (const model::RecurrentSpec* recurrent = spec.recurrent()) {
    require_supported_heads(*recurrent);
  }
  require_supported_widths(spec);
  require_supported_feed_forwards(spec);
  if (options.muon) {
    require_supported_by_muon(spec);
  }
  if (options.fp8_products) {
    const std::string problem = ops::cuda::Fp8Support::here().problem();
    require(problem.empty(), "--dtype fp8: {}", problem);
    require_fp8_widths(options, spec);
  }
  const bool borrows = (spec.dms || spec.dmc) && model::borrows_channels(spec);
  for (const model::LayerSpec& layer : spec.layers) {
    const model::AttentionSpec* attention = layer.attention();
    const bool whole = attention != nullptr &&
                       attention->query_key_norm == model::AttentionSpec::QueryKeyNorm::whole;
    require(!whole || !borrows,
            "the model has norms over all heads together, in which borrowed channels take part: it "
            "is trained on the CPU only, or with --decisions adapter");
    const bool biased = attention != nullptr && attention->output_bias;
    require(!layer.norm_after || (!biased && !layer.feed_forward.bias),
            "the model has biases before norms: it is trained on the CPU only");
  }
  require(!spec.dmc || options.retrofit->merge_span <= ops::cuda::kMostMergeSpan,
          "--merge-span {}: expected at most {} on a CUDA device", options.retrofit->merge_span,
          ops::cuda::kMostMergeSpan);
}

void require_devices(const TrainingOptions& options, const model::ModelSpec& base) {
  const int ranks = parallel::launched_as() ? 1 : options.ranks;  // of this process
  for (int rank = 0; rank < ranks; ++rank) {
    winnow::cuda::use_device(parallel::device_of_rank(*options.cuda_device, rank, options.ranks));
    require_supported(options, student_config(options, base));
  }
}

}  // namespace winnow::train::cuda
