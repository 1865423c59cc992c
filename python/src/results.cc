// What a request gives back.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "bindings.h"
#include "winnow/llm.h"

namespace winnow::python {
namespace {

using Ids = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<1>>;
using Scores = nb::ndarray<nb::numpy, float, nb::ndim<1>>;
using TopIds = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<2>>;
using TopScores = nb::ndarray<nb::numpy, float, nb::ndim<2>>;
/// Tokens and their log-probabilities [T], the most likely ones and theirs [T, alternatives].
using LogprobArrays = std::tuple<Ids, Scores, TopIds, TopScores>;

LogprobArrays to_arrays(const std::vector<ScoredToken>& tokens) {
  std::vector<std::int32_t> ids;
  std::vector<float> scores;
  std::vector<std::int32_t> top_ids;
  std::vector<float> top_scores;
  for (const ScoredToken& token : tokens) {
    ids.push_back(token.token);
    scores.push_back(token.logprob);
    for (const TokenLogprob& other : token.alternatives) {
      top_ids.push_back(other.token);
      top_scores.push_back(other.logprob);
    }
  }
  const std::size_t count = tokens.size();
  const std::size_t width = count > 0 ? tokens.front().alternatives.size() : 0;
  return {to_numpy<std::int32_t, 1>(std::move(ids), {count}),
          to_numpy<float, 1>(std::move(scores), {count}),
          to_numpy<std::int32_t, 2>(std::move(top_ids), {count, width}),
          to_numpy<float, 2>(std::move(top_scores), {count, width})};
}

TopIds live_entries(const CacheStats& stats) {
  std::vector<std::int32_t> entries;
  for (const auto& layer : stats.per_layer_head) {
    entries.insert(entries.end(), layer.begin(), layer.end());
  }
  const std::size_t layers = stats.per_layer_head.size();
  return to_numpy<std::int32_t, 2>(std::move(entries),
                                   {layers, layers > 0 ? stats.per_layer_head.front().size() : 0});
}

}  // namespace

void bind_results(nb::module_& module) {
  nb::class_<CacheStats>(module, "CacheStats")
      .def_ro("bytes", &CacheStats::bytes)
      .def_ro("state_bytes", &CacheStats::state_bytes)
      .def_ro("dense_bytes", &CacheStats::dense_bytes)
      .def_ro("compression_ratio", &CacheStats::compression_ratio)
      .def("live_entries", &live_entries);

  nb::class_<Sample>(module, "Sample")
      .def_ro("text", &Sample::text)
      .def_ro("token_ids", &Sample::token_ids)
      .def_ro("finish_reason", &Sample::finish_reason)
      .def_ro("kv", &Sample::kv)
      .def("logprobs", [](const Sample& sample) { return to_arrays(sample.logprobs); });

  nb::class_<Generation>(module, "Generation")
      .def_ro("samples", &Generation::samples)
      .def_ro("prompt_tokens", &Generation::prompt_tokens)
      .def_ro("prefill_tokens_per_s", &Generation::prefill_tokens_per_s)
      .def_ro("decode_tokens_per_s", &Generation::decode_tokens_per_s)
      .def("prompt_logprobs",
           [](const Generation& result) { return to_arrays(result.prompt_logprobs); });

  nb::class_<CacheMemory>(module, "CacheMemory")
      .def_ro("bytes", &CacheMemory::bytes)
      .def_ro("capacity", &CacheMemory::capacity)
      .def_ro("running", &CacheMemory::running)
      .def_ro("waiting", &CacheMemory::waiting);

  nb::class_<ModelInfo>(module, "ModelInfo")
      .def_ro("family", &ModelInfo::family)
      .def_ro("layers", &ModelInfo::layers)
      .def_ro("cache_layers", &ModelInfo::cache_layers)
      .def_ro("heads", &ModelInfo::heads)
      .def_ro("kv_heads", &ModelInfo::kv_heads)
      .def_ro("head_dim", &ModelInfo::head_dim)
      .def_ro("hidden", &ModelInfo::hidden)
      .def_ro("vocab", &ModelInfo::vocab)
      .def_ro("max_positions", &ModelInfo::max_positions)
      .def_ro("parameters", &ModelInfo::parameters)
      .def_ro("cache", &ModelInfo::cache)
      .def_ro("kv_dtype", &ModelInfo::kv_dtype)
      .def_prop_ro("window", [](const ModelInfo& info) {
        return info.window >= 0 ? std::optional(info.window) : std::nullopt;
      });
}

}  // namespace winnow::python
