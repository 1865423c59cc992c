// The activations of one step of a Model. Private to its files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcache/attend.h"
#include "model/model.h"

namespace winnow::model {

/// A matrix of the workspace, uninitialised.
inline ops::Matrix<float> take_matrix(ops::Workspace& workspace, std::size_t rows, int cols) {
  const auto width = static_cast<std::size_t>(cols);
  return {workspace.take<float>(rows * width).data(), rows, width};
}

// Calls add(first, last, adapter) for the rows [first, last) of each sequence; `rows` gives their
// number. adapter is null for sequences without one.
template <class Rows, class Add>
void each_sequence(std::span<const SequenceStep> steps, const Rows& rows, const Add& add) {
  std::size_t first = 0;
  for (const SequenceStep& step : steps) {
    const std::size_t last = first + rows(step);
    add(first, last, step.adapter);
    first = last;
  }
}

inline std::size_t all_tokens(const SequenceStep& step) {
  return step.tokens.size();
}

inline std::size_t logit_rows(const SequenceStep& step) {
  return step.logit_rows;
}

// The activations of one step: the tokens of all its sequences, one sequence after another.
struct Model::Activations {
  Activations(ops::Workspace& workspace, const ModelSpec& spec, std::size_t tokens)
      : hidden(take_matrix(workspace, tokens, spec.hidden)),
        normed(take_matrix(workspace, tokens, spec.hidden)),
        queries(take_matrix(workspace, tokens, widest(spec, &AttentionSpec::query_width))),
        keys(take_matrix(workspace, tokens, widest(spec, &AttentionSpec::key_width))),
        values(take_matrix(workspace, tokens, widest(spec, &AttentionSpec::value_width))),
        attended(take_matrix(workspace, tokens, widest(spec, &AttentionSpec::attended_width))) {
    if (spec.attention().output_gate) {
      projected = take_matrix(workspace, tokens, spec.attention().query_outputs());
      gates = take_matrix(workspace, tokens, spec.attention().attended_width());
    }
    if (std::ranges::any_of(spec.layers, &LayerSpec::parallel)) {
      parallel = take_matrix(workspace, tokens, spec.hidden);
    }
    if (const RecurrentSpec* recurrent = spec.recurrent()) {
      recalled = take_matrix(workspace, tokens, recurrent->heads.value_width());
    }
    if (spec.dms || spec.dmc) {
      const int heads = spec.compressing_attention().kv_heads;
      decisions.flags = {
          workspace.take<std::uint8_t>(tokens * static_cast<std::size_t>(heads)).data(), tokens,
          static_cast<std::size_t>(heads)};
      decisions.logits = take_matrix(workspace, tokens, heads);
      decisions.omegas = take_matrix(workspace, tokens, heads);
    }
  }

  // Makes the matrices of a layer as wide as its heads need.
  void fit(const AttentionSpec& attention) {
    queries = narrowed(queries, attention.query_width());
    keys = narrowed(keys, attention.key_width());
    values = narrowed(values, attention.value_width());
    attended = narrowed(attended, attention.attended_width());
  }

  // Of each sequence's `rows` keeps the last `wanted`.
  template <class Rows, class Wanted>
  void keep_last_rows(std::span<const SequenceStep> steps, const Rows& rows, const Wanted& wanted) {
    std::size_t kept = 0;
    std::size_t last = 0;
    for (const SequenceStep& step : steps) {
      last += rows(step);
      for (std::size_t t = last - wanted(step); t < last; ++t, ++kept) {
        for (const ops::Matrix<float>* matrix :
             {&hidden, &attended, &recalled, &parallel, &layer_inputs}) {
          if (matrix->data != nullptr) {
            std::ranges::copy(matrix->row(t), matrix->row(kept).begin());
          }
        }
      }
    }
    for (ops::Matrix<float>* matrix :
         {&hidden, &normed, &attended, &recalled, &parallel, &layer_inputs}) {
      if (matrix->data != nullptr) {
        *matrix = matrix->slice(0, kept);
      }
    }
  }

  ops::Matrix<float> hidden;  // the residual stream
  ops::Matrix<float> normed;
  ops::Matrix<float> joined;    // of a head that drafts: what attention takes
  ops::Matrix<float> parallel;  // parallel layers: the input of the feed-forward
  ops::Matrix<float> queries;
  ops::Matrix<float> keys;
  ops::Matrix<float> values;
  ops::Matrix<float> attended;
  ops::Matrix<float> projected;  // queries with their output gates, if the model has them
  ops::Matrix<float> gates;
  ops::Matrix<float> recalled;      // outputs of recurrent layers, if the model has them
  ops::Matrix<float> layer_inputs;  // per-layer embeddings of all layers, if the model has them
  Decisions decisions;
  std::vector<std::int32_t> positions;
  std::vector<ops::RopeAngles> angles;     // by table
  std::vector<kvcache::SeenEntries> seen;  // by index in the cache; for layers that others share

 private:
  static int widest(const ModelSpec& spec, int (AttentionSpec::*width)() const) {
    int most = 0;
    for (const LayerSpec& layer : spec.layers) {
      most = std::max(most, layer.attention() != nullptr ? (layer.attention()->*width)() : 0);
    }
    return most;
  }
  static ops::Matrix<float> narrowed(const ops::Matrix<float>& x, int width) {
    return {x.data, x.rows, static_cast<std::size_t>(width)};
  }
};

}  // namespace winnow::model
