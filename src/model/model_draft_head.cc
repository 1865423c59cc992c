// What a Model does differently as a head that drafts (DraftHeadSpec): the stream before its layer,
// and logits in the target's vocabulary.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "model/activations.h"
#include "model/mixer_parts.h"
#include "model/norms.h"
#include "ops/linear.h"

namespace winnow::model {

void Model::begin_head(ops::Context& context, std::span<const SequenceStep> steps,
                       Activations& a) const {
  check_inputs(steps);
  if (spec_.draft_head->widens_attention()) {
    begin_eagle(context, steps, a);
  } else {
    begin_mtp(context, steps, a);
  }
}

void Model::check_inputs(std::span<const SequenceStep> steps) const {
  for (const SequenceStep& step : steps) {
    const int width = step.input.own ? spec_.hidden : spec_.draft_head->inputs();
    require(step.input.states.rows == step.tokens.size() &&
                step.input.states.cols == static_cast<std::size_t>(width),
            "a head that drafts got no states of the model for which it drafts");
  }
}

// Embedding and stream, the target's or the head's own, are fused.
void Model::begin_mtp(ops::Context& context, std::span<const SequenceStep> steps,
                      Activations& a) const {
  const ops::Workspace::Scope scope(*context.workspace);
  const DraftHeadWeights& head = weights_.draft_head;
  const bool stream_first = spec_.draft_head->stream_first;
  const auto both = take_matrix(*context.workspace, a.hidden.rows, 2 * spec_.hidden);
  const auto embedded = columns(both, stream_first ? spec_.hidden : 0, spec_.hidden);
  const auto stream = columns(both, stream_first ? 0 : spec_.hidden, spec_.hidden);
  embed(context, steps, a.normed);
  normalize(spec_.final_norm, embedded, a.normed, head.embedding_norm);
  std::size_t first = 0;
  for (const SequenceStep& step : steps) {
    const std::size_t last = first + step.tokens.size();
    normalize(spec_.final_norm, stream.slice(first, last), step.input.states, head.input_norm);
    first = last;
  }
  ops::linear(context, a.hidden, both, head.fusion);
}

// The stream is what the head takes beside tokens; attention takes both, normed, side by side.
void Model::begin_eagle(ops::Context& context, std::span<const SequenceStep> steps,
                        Activations& a) const {
  const NormSpec& norm = spec_.layer(0).norm;
  const DraftHeadWeights& head = weights_.draft_head;
  take_inputs(context, steps, a.hidden);
  a.joined = take_matrix(*context.workspace, a.hidden.rows, 2 * spec_.hidden);
  const auto embedded = columns(a.joined, 0, spec_.hidden);
  const auto normed = columns(a.joined, spec_.hidden, spec_.hidden);
  embed(context, steps, a.normed);
  normalize(norm, embedded, a.normed, head.embedding_norm);
  normalize(norm, normed, a.hidden, weights_.layers.front().attention_norm);
  if (spec_.draft_head->norms_residual) {
    for (std::size_t t = 0; t < a.hidden.rows; ++t) {
      std::ranges::copy(normed.row(t), a.hidden.row(t).begin());
    }
  }
}

// The target's states, fused, or the head's own.
void Model::take_inputs(ops::Context& context, std::span<const SequenceStep> steps,
                        ops::Matrix<float> hidden) const {
  const DraftHeadWeights& head = weights_.draft_head;
  std::size_t first = 0;
  for (const SequenceStep& step : steps) {
    const ops::Matrix<const float> input = step.input.states;
    const std::size_t last = first + step.tokens.size();
    const ops::Matrix<float> rows = hidden.slice(first, last);
    if (step.input.own) {
      for (std::size_t t = 0; t < rows.rows; ++t) {
        std::ranges::copy(input.row(t), rows.row(t).begin());
      }
    } else if (head.input_norm.empty()) {
      ops::linear(context, rows, input, head.fusion);
    } else {
      const ops::Workspace::Scope scope(*context.workspace);
      const auto normed = take_matrix(*context.workspace, input.rows, spec_.draft_head->inputs());
      normalize(spec_.layer(0).norm, normed, input, head.input_norm);
      ops::linear(context, rows, normed, head.fusion);
    }
    first = last;
  }
}

// Tokens that the head cannot draft get no probability.
void Model::head_logits(ops::Context& context, const Activations& a,
                        ops::Matrix<float> logits) const {
  if (weights_.draft_head.tokens.empty()) {
    return part_of_logits(context, a, logits);
  }
  const ops::Workspace::Scope scope(*context.workspace);
  const auto drafted = take_matrix(*context.workspace, logits.rows, spec_.head_rows());
  part_of_logits(context, a, drafted);
  for (std::size_t row = 0; row < logits.rows; ++row) {
    const auto all = logits.row(row);
    std::ranges::fill(all, -std::numeric_limits<float>::infinity());
    for (std::size_t i = 0; i < drafted.cols; ++i) {
      all[static_cast<std::size_t>(weights_.draft_head.tokens[i])] = drafted.row(row)[i];
    }
  }
}

}  // namespace winnow::model
